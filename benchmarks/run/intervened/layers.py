"""Wide layers in fp32 with Adam: products that a shorter type and more threads make faster."""

from __future__ import annotations

import torch
from _blocks import train
from torch import nn
from torch.nn import functional

WIDTH, BATCH = 1024, 192

torch.manual_seed(0)
layers = [nn.Linear(WIDTH, WIDTH) for _ in range(4)]
model = nn.Sequential(*(part for one in layers for part in (one, nn.ReLU())))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
inputs, wanted = torch.randn(BATCH, WIDTH), torch.randn(BATCH, WIDTH)


def step(without: str) -> None:
    """One step; threads are set by whoever starts this, and two when those are the remedy."""
    torch.set_num_threads(2 if without == "threads" else THREADS)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=without == "precision"):
        loss = functional.mse_loss(model(inputs).float(), wanted)
    loss.backward()
    if without != "optimizer":
        optimizer.step()


THREADS = torch.get_num_threads()
train(step, ("precision", "threads", "optimizer"))
