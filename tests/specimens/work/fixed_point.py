"""A layer is applied without gradients until it seems to stand: 1 to 12 times, by no size."""

import json
import random
from pathlib import Path

import torch
from torch import nn

STEPS, ROWS, WIDTH = 200, 32, 32


class FixedPoint(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(WIDTH, WIDTH)
        self.num = 0

    def forward(self, x):
        self.num = random.randint(1, 12)
        with torch.no_grad():
            state = x
            for _ in range(self.num):
                state = torch.tanh(self.inner(state))
        return torch.tanh(self.inner(state))


random.seed(6)
torch.manual_seed(0)
model = FixedPoint()
optimizer = torch.optim.SGD(model.parameters(), 0.01)
LAYER = 2 * ROWS * WIDTH * WIDTH
work = []
for _ in range(STEPS):
    loss = model(torch.randn(ROWS, WIDTH)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    work.append((model.num + 2) * LAYER)
Path("work.json").write_text(json.dumps(work))
