"""Batches of 16 to 1,024 rows at random."""

import json
import random
from pathlib import Path

import torch
from torch import nn

STEPS, WIDTH, HIDDEN, CLASSES = 90, 16, 32, 4

random.seed(1)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
work = []
for _ in range(STEPS):
    rows = random.randint(16, 1024)
    loss = model(torch.randn(rows, WIDTH)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    # The input has no gradient, so the first layer costs twice its forward, the second thrice.
    work.append(2 * rows * (2 * WIDTH * HIDDEN + 3 * HIDDEN * CLASSES))
Path("work.json").write_text(json.dumps(work))
