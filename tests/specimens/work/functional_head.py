"""The head is written as functions, without a module."""

import json
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

STEPS, ROWS, DATA, WIDTH, CLASSES = 40, 32, 16, 24, 64

torch.manual_seed(0)
body = nn.Linear(DATA, WIDTH)
head = nn.Parameter(torch.randn(CLASSES, WIDTH) / WIDTH)
optimizer = torch.optim.SGD([*body.parameters(), head], 0.01)
for _ in range(STEPS):
    out = F.linear(torch.relu(body(torch.randn(ROWS, DATA))), head)
    loss = F.cross_entropy(out, torch.randint(0, CLASSES, (ROWS,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
FIRST, SECOND = 2 * ROWS * DATA * WIDTH, 2 * ROWS * WIDTH * CLASSES
Path("work.json").write_text(json.dumps([2 * FIRST + 3 * SECOND] * STEPS))
