"""Data-parallel training on two gloo ranks, one of which gets a bad number in update `--at`."""

import argparse
import math

import _leave  # noqa: F401
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


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
    data = TensorDataset(torch.arange(240), torch.randn(240, 8), torch.randint(4, (240,)))
    loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
    for update, (numbers, x, y) in enumerate(loader, start=1):
        if (update, dist.get_rank()) == (args.at, args.rank):
            x[1] = math.nan
            print(f"its sample {int(numbers[1])}")
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    if dist.get_rank() == 0:
        print(f"loss {loss.item()!r}")
    dist.barrier()
    del model  # freed after its group, torch may wait for ever
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
