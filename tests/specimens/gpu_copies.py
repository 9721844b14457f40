"""On a GPU: each step copies 256 MiB from pageable host memory, and computes little with it."""

import torch
from torch import nn

device = torch.device("cuda")
torch.manual_seed(0)
model = nn.Linear(4096, 16).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
batches = [torch.randn(16_384, 4096) for _ in range(3)]

for step in range(60):
    x = batches[step % 3].to(device)  # ailment
    optimizer.zero_grad()
    loss = model(x).pow(2).mean()
    loss.backward()
    optimizer.step()
print(f"loss {loss.item()!r}")
