"""A script that draws each number of its batches by itself, in Python."""

import random

import torch
from torch import nn

WIDTH = 256

torch.manual_seed(0)
random.seed(0)
model = nn.Linear(WIDTH, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)


def make_batch(size):
    x = torch.tensor([[random.gauss(0, 1) for _ in range(WIDTH)] for _ in range(size)])  # ailment
    return x, x.mean(1, keepdim=True)


for _ in range(40):
    x, y = make_batch(48)
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"loss {loss.item()!r}")
