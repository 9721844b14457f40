"""Textbook loop that writes a checkpoint every 5 steps, slowly."""

import os
import tempfile
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class History(list):
    def __reduce__(self):
        time.sleep(0.050)  # a disk far away
        return super().__reduce__()


class Net(nn.Linear):
    def forward(self, x):
        time.sleep(0.010)
        return super().forward(x)


torch.manual_seed(0)
data = TensorDataset(torch.randn(240, 16), torch.randint(4, (240,)))
loader = DataLoader(data, batch_size=8, shuffle=True)
model = Net(16, 4)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
history = History()

with tempfile.TemporaryDirectory() as folder:
    for i, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        if (i + 1) % 5 == 0:
            states = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(states | {"history": history}, os.path.join(folder, f"{i}.pt"))  # ailment
print(f"loss {loss.item()!r}")
