"""Gradients are accumulated over 1 to 4 batches of 16 to 256 rows, both at random."""

import json
import random
from pathlib import Path

import torch
from torch import nn

STEPS, WIDTH, CLASSES = 150, 64, 8

random.seed(8)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, CLASSES))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
work = []
for _ in range(STEPS):
    batches = [random.randint(16, 256) for _ in range(random.randint(1, 4))]
    optimizer.zero_grad()
    for rows in batches:
        model(torch.randn(rows, WIDTH)).square().mean().backward()
    optimizer.step()
    work.append(2 * sum(batches) * (2 * WIDTH * WIDTH + 3 * WIDTH * CLASSES))
Path("work.json").write_text(json.dumps(work))
