"""A teacher without gradients is called in each step."""

import json
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

STEPS, ROWS, DATA, WIDTH, TEACHER = 40, 32, 16, 24, 64


def network(width):
    return nn.Sequential(nn.Linear(DATA, width), nn.ReLU(), nn.Linear(width, 4))


torch.manual_seed(0)
student, teacher = network(WIDTH), network(TEACHER)
optimizer = torch.optim.SGD(student.parameters(), 0.01)
for _ in range(STEPS):
    x = torch.randn(ROWS, DATA)
    with torch.no_grad():
        wanted = teacher(x)
    loss = F.mse_loss(student(x), wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
STUDENT = 2 * ROWS * (2 * DATA * WIDTH + 3 * WIDTH * 4)
Path("work.json").write_text(json.dumps([STUDENT + 2 * ROWS * TEACHER * (DATA + 4)] * STEPS))
