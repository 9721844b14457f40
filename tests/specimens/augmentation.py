"""Textbook loop that augments each batch itself, slowly, between the loader and the model."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def augment(images):
    time.sleep(0.030)
    return images.flip(-1) + 0.1 * torch.randn_like(images)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(192, 32), nn.ReLU(), nn.Linear(32, 4))

    def forward(self, x):
        time.sleep(0.010)
        return self.layers(x)


torch.manual_seed(0)
data = TensorDataset(torch.randn(320, 3, 8, 8), torch.randint(4, (320,)))
loader = DataLoader(data, batch_size=8, shuffle=True)
model = Net()
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for images, labels in loader:
    images = augment(images)  # ailment
    optimizer.zero_grad()
    loss = criterion(model(images), labels)
    loss.backward()
    optimizer.step()
print(f"loss {loss.item()!r}")
