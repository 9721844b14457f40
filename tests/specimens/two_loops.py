"""A pretraining and then a finetuning of something else, or with `--turns` both again and again.

The second loop sleeps in each step, so that it takes most of the time.
"""

import argparse
import time

import torch
from torch import nn


def train(model, optimizer, x, *, steps, pause):
    for _ in range(steps):
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()  # step
        time.sleep(pause)


parser = argparse.ArgumentParser()
parser.add_argument("--turns", type=int, default=1)
args = parser.parse_args()

torch.manual_seed(0)
small, large = nn.Linear(16, 16), nn.Linear(64, 64)
first = torch.optim.Adam(small.parameters(), lr=1e-3)
second = torch.optim.SGD(large.parameters(), lr=1e-2)
for _ in range(args.turns):
    train(small, first, torch.randn(8, 16), steps=60 // args.turns, pause=0.0)  # first
    train(large, second, torch.randn(8, 64), steps=40 // args.turns, pause=0.05)  # second
