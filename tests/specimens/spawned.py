"""Trains in two spawned children alone; the process itself only waits for them."""

import torch
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn


def train(number):
    torch.manual_seed(number)
    model = nn.Linear(16, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(20 + 10 * number):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(torch.randn(8, 16)), torch.randint(4, (8,)))
        loss.backward()
        optimizer.step()
    print(f"{number} loss {loss.item()!r}", flush=True)


if __name__ == "__main__":
    mp.spawn(train, nprocs=2)
