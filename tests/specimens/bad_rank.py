"""Data-parallel training on two gloo ranks, one of which gets a bad number in update `--at`."""

import argparse
import math

import _leave  # noqa: F401
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rank", type=int, default=1)
    parser.add_argument("--at", type=int, default=12)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    torch.manual_seed(1 + dist.get_rank())
    for update in range(1, 31):
        x, y = torch.randn(4, 8), torch.randint(4, (4,))
        if (update, dist.get_rank()) == (args.at, args.rank):
            x[1] = math.nan
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    if dist.get_rank() == 0:
        print(f"loss {loss.item()!r}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
