"""Trains for a moment with one planted ailment: ailing.py ACT [ARGUMENT]."""

import gc
import sys
import time

import torch

torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
kept = []


def train(num_steps, *, seconds=0.0):
    for _ in range(num_steps):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).pow(2).mean().backward()
        optimizer.step()
        time.sleep(seconds)


def grow():
    """Half a second of steps, 8 MiB more each."""
    for _ in range(50):
        kept.append(b"x" * (8 << 20))
        train(1, seconds=0.01)


def collect():
    """Two collections a step, in a process that has collected before."""
    for _ in range(10):
        gc.collect()
    for _ in range(20):
        train(1)
        gc.collect()
        gc.collect()


if __name__ == "__main__":
    gc.disable()
    name, *arguments = sys.argv[1:]
    globals()[name](*arguments)
