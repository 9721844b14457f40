"""Batches of 32 rows, and of 512 from a step on: the 60th, or that of the command line."""

import json
import sys
from pathlib import Path

import torch
from torch import nn

WIDTH, HIDDEN, CLASSES = 32, 64, 8
JUMPS_AT = int(sys.argv[1]) if len(sys.argv) > 1 else 60
STEPS = JUMPS_AT + 120

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
work = []
for step in range(STEPS):
    rows = 32 if step < JUMPS_AT else 512
    loss = model(torch.randn(rows, WIDTH)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    work.append(2 * rows * (2 * WIDTH * HIDDEN + 3 * HIDDEN * CLASSES))
Path("work.json").write_text(json.dumps(work))
