"""Trains as one of several in a command.

`several.py one STEPS [SECONDS]` makes so many steps alone. `several.py evaluate` uses a model and
makes no step. `several.py ranks STEPS` is started by torchrun. `several.py groups STEPS STEPS`
spawns a process group of two ranks for each number, one after the other, at the same address.
"""

import socket
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel


def train(model, steps, seconds=0.0):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        time.sleep(seconds)
        loss = model(torch.ones(8, 4)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def one(steps, seconds="0"):
    train(torch.nn.Linear(4, 1), int(steps), float(seconds))


def evaluate():
    with torch.no_grad():
        torch.nn.Linear(4, 1)(torch.ones(8, 4))


def ranks(steps):
    dist.init_process_group("gloo")
    together(int(steps))


def together(steps):
    train(DistributedDataParallel(torch.nn.Linear(4, 1)), steps)
    dist.barrier()
    dist.destroy_process_group()


def work(rank, steps, address):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=2)
    together(steps)


def groups(*steps):
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{found.getsockname()[1]}"
    for num in steps:
        mp.spawn(work, args=(int(num), address), nprocs=2)


if __name__ == "__main__":
    torch.set_num_threads(1)
    globals()[sys.argv[1]](*sys.argv[2:])
