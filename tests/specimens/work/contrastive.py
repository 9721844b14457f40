"""Two views of a batch are compared with each other (SimCLR): a product outside of modules."""

import json
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

STEPS, ROWS, DATA, WIDTH = 40, 32, 16, 24

torch.manual_seed(0)
encoder = nn.Sequential(nn.Linear(DATA, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
optimizer = torch.optim.SGD(encoder.parameters(), 0.01)
own = torch.eye(2 * ROWS, dtype=torch.bool)
other = (torch.arange(2 * ROWS) + ROWS) % (2 * ROWS)
for _ in range(STEPS):
    images = torch.randn(ROWS, DATA)
    views = torch.cat([images + 0.1 * torch.randn_like(images) for _ in range(2)])
    made = F.normalize(encoder(views), dim=1)
    alike = (made @ made.T).masked_fill(own, -1e9)
    loss = F.cross_entropy(alike / 0.5, other)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
FIRST, SECOND = 2 * 2 * ROWS * DATA * WIDTH, 2 * 2 * ROWS * WIDTH * WIDTH
PAIRS = 2 * (2 * ROWS) ** 2 * WIDTH
Path("work.json").write_text(json.dumps([2 * FIRST + 3 * SECOND + 3 * PAIRS] * STEPS))
