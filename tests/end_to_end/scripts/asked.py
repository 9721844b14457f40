"""Trains until a file is there, or for a number of steps; writes the bits of every loss.

    asked.py WAY (FILE | NUMBER) RESULT

`plain` has a model with dropout, so that random numbers count; `ranks` is the same under DDP;
`turns` has two optimizers that take turns. With a FILE, each step waits a moment, so that there are
not too many of them.
"""

import json
import sys
import time
from pathlib import Path

import torch
from torch import nn

WAY, until, result = sys.argv[1:]
NUM_STEPS = int(until) if until.isdigit() else None
MAX_STEPS = 20_000

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 10))
rank = 0
if WAY == "ranks":
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    model = nn.parallel.DistributedDataParallel(model)
if WAY == "turns":
    parameters = list(model.parameters())
    optimizers = [torch.optim.AdamW(parameters[:2]), torch.optim.AdamW(parameters[2:])]
else:
    optimizers = [torch.optim.AdamW(model.parameters(), lr=1e-3)]
inputs, targets = torch.randn(64, 32), torch.randint(10, (64,))
kept = [torch.zeros(1000) for _ in range(50)]  # tensors that belong to no part


def is_over(step):
    if NUM_STEPS is not None:
        return step >= NUM_STEPS
    time.sleep(0.002)
    flag = torch.tensor(float(Path(until).exists()))
    if WAY == "ranks":
        torch.distributed.all_reduce(flag)
    return flag > 0 or step >= MAX_STEPS


def main():
    losses = []
    while not is_over(len(losses)):
        for optimizer in optimizers:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs), targets)
            loss.backward()
            optimizer.step()
        losses.append(loss.item().hex())
    weights = [float(one.double().sum()).hex() for one in model.parameters()]
    found = {"losses": losses, "weights": weights, "rng": torch.rand(1).item().hex()}
    Path(f"{rank}-{result}").write_text(json.dumps(found))


main()
if WAY == "ranks":
    torch.distributed.destroy_process_group()
