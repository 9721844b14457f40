"""A head is trained alone, and the whole network from the middle of the run on."""

import json
import time
from pathlib import Path

import torch
from torch import nn

STEPS, ROWS, WIDTH, CLASSES = 120, 32, 32, 4

torch.manual_seed(0)
body = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU())
model = nn.Sequential(body, nn.Linear(WIDTH, CLASSES))
body.requires_grad_(False)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
LAYER, HEAD = 2 * ROWS * WIDTH * WIDTH, 2 * ROWS * WIDTH * CLASSES
work = []
for step in range(STEPS):
    if step == STEPS // 2:
        body.requires_grad_(True)
    loss = model(torch.randn(ROWS, WIDTH)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    time.sleep(0.003)  # most of a step, so that those before are no warmup of those after
    backward = 3 * LAYER + 2 * HEAD if step >= STEPS // 2 else HEAD
    work.append(2 * LAYER + HEAD + backward)
Path("work.json").write_text(json.dumps(work))
