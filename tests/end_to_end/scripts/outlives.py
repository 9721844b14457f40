"""Leaves its launcher as daemons do, trains 30 steps, waits for a file, and trains 30 more.

    outlives.py GO [LAST_ACT]

GO is the file that it waits for. The last act is one of the functions below.
"""

import os
import sys
import time
from pathlib import Path


def detach():
    """Fork twice, in a session of its own: nothing is left that would wait for this process."""
    if os.fork():
        os._exit(0)
    os.setsid()
    if os.fork():
        os._exit(0)
    null = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(null, stream)


def train(num_steps):
    for _ in range(num_steps):
        optimizer.zero_grad()
        model(torch.ones(8, 4)).pow(2).mean().backward()
        optimizer.step()
    time.sleep(0.25)  # what was seen so far is written at the next step
    optimizer.step()


def end():
    """End as scripts do."""


def raise_error():
    raise RuntimeError("the last act")


def leave():
    os._exit(0)


if __name__ == "__main__":
    go, *acts = sys.argv[1:]
    if "torch_first" in acts:
        import torch
    detach()
    import torch

    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    train(29)
    while not Path(go).exists():
        time.sleep(0.01)
    train(29)
    for act in acts:
        if act != "torch_first":
            globals()[act]()
