"""On a GPU: `.item()` in every step makes a busy host wait, and leaves the device without work."""

import time

import torch
from torch import nn

device = torch.device("cuda")
torch.manual_seed(0)
model = nn.Sequential(*(nn.Linear(2048, 2048) for _ in range(8))).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
x, y = torch.randn(2048, 2048, device=device), torch.randn(2048, 2048, device=device)
total = 0.0

for _ in range(60):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    total += loss.item()  # ailment
    time.sleep(0.010)  # work of the host that could have run beside the device
print(f"mean loss {total / 60!r}")
