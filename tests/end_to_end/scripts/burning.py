"""A tiny training that wastes most of its time, which levers of the tests take away."""

import argparse
import os
import time

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=100_000)
parser.add_argument("--ranks", action="store_true", help="on as many as torchrun started")
options = parser.parse_args()

BURN_S = 0.008 * (os.environ.get("BURN") != "no")


def burn():
    until = time.thread_time() + BURN_S
    while time.thread_time() < until:
        pass


torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))
if options.ranks:
    torch.distributed.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
for _ in range(options.steps):
    x = torch.randn(16, 32)
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    burn()
    optimizer.step()
