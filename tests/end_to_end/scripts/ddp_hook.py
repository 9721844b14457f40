"""Data-parallel training with a communication hook of the user's own, and accumulation."""

from __future__ import annotations

import contextlib

import _leave  # noqa: F401
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)


def halve(state, bucket):
    """Sums in half precision; the second parameter must bear that name."""
    state["calls"] += 1
    small = bucket.buffer().to(torch.bfloat16) / dist.get_world_size()
    future = dist.all_reduce(small, async_op=True).get_future()
    return future.then(lambda done: done.value()[0].to(torch.float32))


# At module level, and the group is not destroyed: torch may wait for ever when it frees a
# model with a hook in Python (seen with torch 2.13, one run in ten).
dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
layers = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1))
model = DistributedDataParallel(layers)
state = {"calls": 0}
model.register_comm_hook(state, halve)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
for step in range(6):
    with contextlib.nullcontext() if step % 2 else model.no_sync():
        loss = model(torch.randn(16, 8)).pow(2).mean()
        loss.backward()
    if step % 2:
        optimizer.step()
        optimizer.zero_grad()
    total = loss.detach().clone()
    dist.all_reduce(total)
    print(f"loss {loss.item()!r} over all ranks {total.item()!r}")
print(state)
