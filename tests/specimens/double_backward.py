"""A penalty on the gradient: backward with a graph of its own, then backward through that."""

import warnings

import torch
from torch import nn

warnings.simplefilter("ignore")  # `create_graph` in `backward` makes a cycle, torch says
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

for _ in range(25):
    x = torch.randn(16, 8, requires_grad=True)
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward(create_graph=True)
    penalty = sum(p.grad.square().sum() for p in model.parameters())
    penalty.backward()
    optimizer.step()
    optimizer.zero_grad()
print(f"loss {loss.item()!r} penalty {penalty.item()!r}")
