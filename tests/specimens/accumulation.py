"""Gradient accumulation: 4 micro-batches a step, the last step of an epoch has 2; healthy."""

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
data = TensorDataset(torch.randn(80, 16), torch.randint(4, (80,)))
loader = DataLoader(data, batch_size=8, shuffle=True)
model = Net(16, 4)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

for epoch in range(8):
    for i, (x, y) in enumerate(loader):
        loss = criterion(model(x), y) / ACCUMULATE
        loss.backward()
        if (i + 1) % ACCUMULATE == 0 or i + 1 == len(loader):
            time.sleep(0.010)  # a look at the gradients, by hand
            optimizer.step()
            optimizer.zero_grad()
    print(f"epoch {epoch} loss {loss.item()!r}")
