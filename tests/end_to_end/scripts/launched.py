"""Data-parallel training as torchrun starts it; prints what each rank ended with."""

import os

import _leave  # noqa: F401
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(6):
    loss = model(torch.randn(8, 4)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"{dist.get_rank()} {os.getpid()} {loss.item().hex()}\n", end="", flush=True)
dist.barrier()
dist.destroy_process_group()
