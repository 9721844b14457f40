"""Trains a tiny network of images as people write it; says the sides that it saw, as JSON."""

import json

import torch
from torch import nn

torch.manual_seed(0)
sides: list[int] = []
body = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())
body.register_forward_pre_hook(lambda module, given: sides.append(given[0].shape[-1]))
model = nn.Sequential(body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
for _ in range(8):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(torch.randn(4, 1, 32, 32)), torch.arange(4)).backward()
    optimizer.step()
seen = len(sides)
model.eval()
with torch.no_grad():
    model(torch.randn(4, 1, 32, 32))
batches = int(body[1].num_batches_tracked)
print(json.dumps({"sides": sides[:seen], "evaluated": sides[seen:], "batches": batches}))
