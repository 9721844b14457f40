"""Two gloo ranks; after some steps rank 1 waits for a lock that nobody lets go, rank 0 for rank 1.

With `--for SECONDS` rank 1 goes on after that time.
"""

import argparse
import threading
import time

import _leave  # noqa: F401
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

FIRST_STEPS = 30


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))

    def forward(self, x):
        time.sleep(0.010)
        return self.layers(x)


def wait_in_vain(seconds):
    lock = threading.Lock()
    lock.acquire()
    lock.acquire(timeout=seconds)  # ailment


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--for", type=float, default=-1, dest="seconds")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(640, 16), torch.randint(4, (640,)))
    loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
    model = DistributedDataParallel(Net())
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step, (x, y) in enumerate(loader):
        if step == FIRST_STEPS and dist.get_rank() == 1:
            wait_in_vain(args.seconds)
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
    if dist.get_rank() == 0:
        print(f"loss {loss.item()!r}")
    dist.barrier()
    del model  # freed after its group, torch may wait for ever
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
