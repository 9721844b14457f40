"""Gradients are accumulated over 1 to 7 batches, at random and in no order."""

import json
import random
from pathlib import Path

import torch
from torch import nn

STEPS, ROWS, WIDTH, CLASSES = 150, 32, 64, 8

random.seed(5)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, CLASSES))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
work = []
for _ in range(STEPS):
    batches = random.randint(1, 7)
    optimizer.zero_grad()
    for _ in range(batches):
        model(torch.randn(ROWS, WIDTH)).square().mean().div(batches).backward()
    optimizer.step()
    work.append(batches * 2 * ROWS * (2 * WIDTH * WIDTH + 3 * WIDTH * CLASSES))
Path("work.json").write_text(json.dumps(work))
