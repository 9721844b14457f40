"""A tiny training; its arguments make it stop, fail, hang or read its input."""

import argparse
import sys
import time

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=100_000)
parser.add_argument("--fail-at", type=int, default=-1)
parser.add_argument("--hang-at", type=int, default=-1)
parser.add_argument("--sleep", type=float, default=0.0, help="seconds a step")
parser.add_argument("--read", action="store_true", help="the width comes from standard input")
options = parser.parse_args()

width = int(sys.stdin.readline()) if options.read else 32
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
for step in range(options.steps):
    if step == options.fail_at:
        raise RuntimeError("the disk of this script is full")
    if step == options.hang_at:
        time.sleep(3600)
    x = torch.randn(16, width)
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    time.sleep(options.sleep)
print("done", width)
