"""Textbook loop whose collate function pads each batch slowly."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader


def pad(samples):
    time.sleep(0.030)
    rows = torch.zeros(len(samples), 16)
    for row, (x, _) in zip(rows, samples, strict=True):
        row[: len(x)] = x
    return rows, torch.tensor([y for _, y in samples])


torch.manual_seed(0)
data = [(torch.randn(8 + i % 8), i % 4) for i in range(160)]
loader = DataLoader(data, batch_size=4, shuffle=True, collate_fn=pad)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for x, y in loader:  # ailment
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
print(f"loss {loss.item()!r}")
