"""Data-parallel training on two gloo ranks; with `--slow-rank R` rank R is slow in forward."""

import argparse
import time

import _leave  # noqa: F401
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Net(nn.Module):
    def __init__(self, seconds):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
        self.seconds = seconds

    def forward(self, x):
        time.sleep(self.seconds)
        return self.layers(x)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--slow-rank", type=int, default=-1)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(480, 16), torch.randint(4, (480,)))
    loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
    seconds = 0.040 if dist.get_rank() == args.slow_rank else 0.010
    model = DistributedDataParallel(Net(seconds))
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)  # ailment
        loss.backward()
        optimizer.step()
    if dist.get_rank() == 0:
        print(f"loss {loss.item()!r}")
    dist.barrier()
    del model  # freed after its group, torch may wait for ever
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
