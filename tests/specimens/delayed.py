"""Training on products of matrices, with a delay in one part of the step, by name.

`input` sleeps while a sample is read, `script` computes in Python after the update, `launch` calls
operators on single numbers, `bandwidth` works through a large buffer, `optimizer` sleeps in the
update, `communication` sends a large tensor between ranks, `none` has no delay.
"""

import os
import sys
import time

import _leave  # noqa: F401
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset

WAY = sys.argv[1] if sys.argv[1:] else "none"
DELAY_S = 0.06
STEPS, BATCH, WIDTH = 45, 128, 512


class Rows(Dataset):
    def __init__(self):
        self.x, self.y = torch.randn(BATCH, WIDTH), torch.randint(10, (BATCH,))

    def __len__(self):
        return STEPS

    def __getitem__(self, index):
        if WAY == "input":
            time.sleep(DELAY_S)
        return self.x, self.y


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(6)))
        self.head = nn.Linear(WIDTH, 10)
        self.register_buffer("large", torch.ones(12 << 20 if WAY == "bandwidth" else 1))
        self.register_buffer("one", torch.ones(1))

    def forward(self, x):
        if WAY == "bandwidth":
            for _ in range(16):
                self.large.mul_(1.0)
        if WAY == "launch":
            for _ in range(14_000):
                self.one.mul_(1.0)
        return self.head(self.layers(x))


class Update(torch.optim.SGD):
    def step(self, closure=None):
        if WAY == "optimizer":
            time.sleep(DELAY_S)
        return super().step(closure)


def compute(seconds):
    began = time.thread_time()
    while time.thread_time() - began < seconds:
        sum(range(1000))


def main():
    is_shared = "RANK" in os.environ
    if is_shared:
        dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = Net()
    criterion = nn.CrossEntropyLoss()
    optimizer = Update(model.parameters(), lr=0.01)
    message = torch.ones(16 << 20 if WAY == "communication" else 1)
    for x, y in DataLoader(Rows(), batch_size=None):
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        if is_shared:
            dist.all_reduce(message)
        optimizer.step()
        if WAY == "script":
            compute(DELAY_S)
    if not is_shared or dist.get_rank() == 0:
        print(f"loss {loss.item()!r}")
    if is_shared:
        dist.barrier()
        dist.destroy_process_group()


main()
