"""Textbook loop that evaluates after every 4 steps, on as much data as it trained on since."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Linear):
    def forward(self, x):
        time.sleep(0.010)
        return super().forward(x)


def evaluate(model, loader):
    model.eval()
    correct = 0
    with torch.no_grad():
        for x, y in loader:
            correct += (model(x).argmax(1) == y).sum().item()  # ailment
    model.train()
    return correct / len(loader.dataset)


torch.manual_seed(0)
data = TensorDataset(torch.randn(320, 16), torch.randint(4, (320,)))
held_out = TensorDataset(torch.randn(40, 16), torch.randint(4, (40,)))
loader = DataLoader(data, batch_size=8, shuffle=True)
held_out_loader = DataLoader(held_out, batch_size=8)
model = Net(16, 4)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for i, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    if (i + 1) % 4 == 0:
        accuracy = evaluate(model, held_out_loader)
print(f"loss {loss.item()!r} accuracy {accuracy}")
