"""Gradient accumulation over 4 micro-batches whose loss is not divided by 4."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

ACCUMULATE = 4


class Net(nn.Linear):
    def forward(self, x):
        time.sleep(0.005)
        return super().forward(x)


torch.manual_seed(0)
data = TensorDataset(torch.randn(1024, 16), torch.randint(4, (1024,)))
loader = DataLoader(data, batch_size=8, shuffle=True)
model = Net(16, 4)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

for i, (x, y) in enumerate(loader):
    loss = criterion(model(x), y)
    loss.backward()  # ailment
    if (i + 1) % ACCUMULATE == 0:
        optimizer.step()
        optimizer.zero_grad()
print(f"loss {loss.item()!r}")
