"""LBFGS with a line search: a step calls its closure until it can do no better, 1 to 7 times."""

import json
import random
from pathlib import Path

import torch
from torch import nn

STEPS, ROWS, WIDTH, HIDDEN = 120, 200, 4, 16

random.seed(7)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, 1))
optimizer = torch.optim.LBFGS(
    model.parameters(), max_iter=10, tolerance_change=0.01, line_search_fn="strong_wolfe"
)
calls = 0


def closure():
    global calls
    calls += 1
    optimizer.zero_grad()
    loss = (model(inputs) - inputs.sin().sum(1, keepdim=True)).square().mean()
    loss.backward()
    return loss


work = []
for step in range(STEPS):
    if step == 0 or random.random() < 0.4:
        inputs = torch.randn(ROWS, WIDTH)
    before = calls
    optimizer.step(closure)
    work.append((calls - before) * 2 * ROWS * (2 * WIDTH * HIDDEN + 3 * HIDDEN))
Path("work.json").write_text(json.dumps(work))
