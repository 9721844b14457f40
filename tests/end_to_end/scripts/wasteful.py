"""A tiny training with three kinds of waste, each with a level that takes some of it out."""

import argparse
import statistics
import sys
import time

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=100_000)
parser.add_argument("--levels", type=int, nargs=3, default=(0, 0, 0))
options = parser.parse_args()

WASTE_S = {"alpha": 0.006, "beta": 0.004, "gamma": 0.003}
LEFT = {
    "alpha": (1.0, 0.8, 0.3, 0.5),
    "beta": (1.0, 0.4, 0.6, 1.3),
    "gamma": (1.0, 1.5, 0.9, 0.2),
}
LEVELS = dict(zip(WASTE_S, options.levels, strict=True))
CHOSEN = sys.__dict__.setdefault("chosen_levels", {})  # by a lever, of which the script knows not


def waste():
    levels = LEVELS | CHOSEN
    seconds = sum(WASTE_S[name] * LEFT[name][level] for name, level in levels.items())
    if levels["alpha"] == 2 and levels["gamma"] == 3:
        seconds += 0.001  # together they give less than each of them promises
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
times = []
for _ in range(options.steps):
    began = time.process_time()
    x = torch.randn(16, 32)
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    waste()
    optimizer.step()
    times.append(time.process_time() - began)
print(statistics.median(times))
