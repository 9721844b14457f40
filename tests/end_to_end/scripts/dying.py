"""Trains for a while and then dies: `dying.py NUM_STEPS ACT`."""

import ctypes
import resource
import sys
import time

import torch

MIB = 1 << 20
torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def step(num_rows=8):
    out = model(torch.randn(num_rows, 64))
    loss = out.pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return out


def fail():
    raise ValueError("a bad batch")


def crash():
    ctypes.string_at(0)


def take_all_memory():
    """Keeps what each step made, under a limit on the process's memory."""
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 512 * MIB,) * 2)
    kept = []
    while True:
        kept.append(step(64 * MIB // 4 // 64))


if __name__ == "__main__":
    for _ in range(int(sys.argv[1])):
        step()
        time.sleep(0.01)
    globals()[sys.argv[2]]()
