"""Sequences of several lengths in one nested tensor, with nothing padded."""

import json
import sys
from pathlib import Path

import torch
from torch import nn

STEPS, DATA, WIDTH = 40, 16, 24
LENGTHS = (3, 5, 8, 16)
LAYOUT = torch.strided if "strided" in sys.argv else torch.jagged

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(DATA, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for _ in range(STEPS):
    batch = torch.nested.nested_tensor(
        [torch.randn(length, DATA) for length in LENGTHS], layout=LAYOUT
    )
    parts = model(batch).unbind()
    loss = torch.stack([part.square().mean() for part in parts]).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
ROWS = sum(LENGTHS)
Path("work.json").write_text(json.dumps([2 * ROWS * WIDTH * (2 * DATA + 3 * WIDTH)] * STEPS))
