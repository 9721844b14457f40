"""Replay memory of 180,000 small Python objects, renewed as it trains: collections pause it."""

import random
import time
from collections import deque

import torch
from torch import nn


def play(count):
    return [{"state": [i, i + 1], "reward": [i % 2]} for i in range(count)]


class Net(nn.Linear):
    def forward(self, x):
        time.sleep(0.005)
        return super().forward(x)


torch.manual_seed(0)
random.seed(0)
memory = deque(play(60_000), maxlen=60_000)
model = Net(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-12)

for _ in range(60):
    memory.extend(play(5_000))
    games = random.sample(memory, 8)
    x = torch.tensor([game["state"] for game in games], dtype=torch.float)
    y = torch.tensor([game["reward"] for game in games], dtype=torch.float)
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"loss {loss.item()!r}")
