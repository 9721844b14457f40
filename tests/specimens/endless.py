"""A loader that never ends, with batches of varying size: the script counts for itself."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, IterableDataset


class Stream(IterableDataset):
    def __iter__(self):
        while True:
            size = int(torch.randint(1, 40, ()))
            yield torch.randn(size, 16), torch.randint(4, (size,))


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=50, help="-1: until somebody stops it")
num_steps = parser.parse_args().steps

torch.manual_seed(0)
model = nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
done = 0
for x, y in DataLoader(Stream(), batch_size=None):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    done += 1
    if num_steps < 0:
        print(done, flush=True)
    if done == num_steps:
        break
print(f"loss {loss.item()!r}")
