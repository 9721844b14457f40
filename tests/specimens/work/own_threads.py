"""Each half of a batch goes through the model in a thread of the script's own."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from torch import nn

STEPS, ROWS, WIDTH, CLASSES = 70, 32, 32, 4

torch.manual_seed(0)
body = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
head = nn.Linear(WIDTH, CLASSES)
optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], 0.01)
LAYER, HEAD = 2 * ROWS * WIDTH * WIDTH, 2 * ROWS * WIDTH * CLASSES
with ThreadPoolExecutor(2) as pool:
    for _ in range(STEPS):
        halves = torch.randn(ROWS, WIDTH).chunk(2)
        parts = list(pool.map(body, halves))
        loss = head(torch.cat(parts)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
Path("work.json").write_text(json.dumps([(2 + 3) * LAYER + 3 * HEAD] * STEPS))
