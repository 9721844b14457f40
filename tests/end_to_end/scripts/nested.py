"""A launcher of its own: two processes that train together, whatever launched this one."""

import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel


def work(rank, folder):
    torch.set_num_threads(1)
    # They meet in a file: torchrun's variables make all who meet at an address its clients.
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(6):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).pow(2).mean().backward()
        optimizer.step()
    print(f"{rank} {os.getpid()}\n", end="", flush=True)
    dist.barrier()
    del model  # freed after its group, torch may wait for ever
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(work, args=(os.getcwd(),), nprocs=2)
