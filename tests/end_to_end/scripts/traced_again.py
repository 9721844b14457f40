"""Traces its model after every update, as a script does that exports as it goes."""

import re

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(16, 8)
graphs = set()
for _ in range(60):
    model.train()
    optimizer.zero_grad()
    model(x).pow(2).mean().backward()
    optimizer.step()
    traced = torch.jit.trace(model.eval(), x)
    graphs.add(re.sub(r"mangle_\d+", "mangle", str(traced.graph)))
    assert torch.equal(traced(x), model(x))
print("\n".join(sorted(graphs)))
