"""One more layer is trained from every 40th step on, beginning with the last."""

import json
from pathlib import Path

import torch
from torch import nn

STEPS, ROWS, WIDTH, LAYERS = 200, 32, 32, 4

torch.manual_seed(0)
model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))
model.requires_grad_(False)
model[-1].requires_grad_(True)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
LAYER = 2 * ROWS * WIDTH * WIDTH
work = []
for step in range(STEPS):
    trained = min(LAYERS, 1 + step // 40)
    model[-trained].requires_grad_(True)
    optimizer.zero_grad()
    loss = model(torch.randn(ROWS, WIDTH)).square().mean()
    loss.backward()
    optimizer.step()
    work.append((LAYERS + trained + trained - 1) * LAYER)  # weights, and inputs but the first's
Path("work.json").write_text(json.dumps(work))
