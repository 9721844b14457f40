"""Trains a DDP model past the update whose operators are counted; for torchrun."""

from __future__ import annotations

import json
import os

import _leave  # noqa: F401
import torch
from states import everything, inputs, seed, small
from torch import distributed
from torch.nn import functional

distributed.init_process_group("gloo")
rank = distributed.get_rank()
seed()
model = torch.nn.parallel.DistributedDataParallel(small())
seed(rank)
x, y = inputs()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
losses = []
for number in range(16):
    optimizer.zero_grad()
    if number % 4 == 0:
        with model.no_sync():
            functional.mse_loss(model(x), y).backward()
    loss = functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
with open(f"{rank}.json", "w") as file:
    json.dump({"result": everything(model, optimizer, losses), "pid": os.getpid()}, file)
distributed.destroy_process_group()
