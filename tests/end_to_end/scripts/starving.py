"""Dies for want of memory: in the first forward, in a later backward, or by a kill.

starving.py first | later | killed
"""

from __future__ import annotations

import os
import signal
import sys

import torch
from torch import nn

torch.set_num_threads(1)
TOO_MUCH = 1 << 50


class Greedy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        torch.empty(TOO_MUCH, dtype=torch.uint8)
        return gradient


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(100, 1000), nn.ReLU(), nn.Linear(1000, 10))
        self.is_greedy = False

    def forward(self, x):
        if self.is_greedy:
            x = x * torch.empty(TOO_MUCH, dtype=torch.uint8)
        return self.inner(x)


def main(way: str) -> None:
    model = Net()
    model.is_greedy = way == "first"
    optimizer = torch.optim.AdamW(model.parameters())
    for number in range(8):
        loss = model(torch.randn(32, 100)).square().mean()
        if way == "later" and number == 3:
            loss = Greedy.apply(loss)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if way == "killed" and number == 1:
            os.kill(os.getpid(), signal.SIGKILL)


main(sys.argv[1])
