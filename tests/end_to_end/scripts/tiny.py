"""Five steps of a tiny model; says who it is and what the last loss was."""

import os
import sys

import torch


def train(steps=5):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        loss = model(torch.randn(8, 4)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item().hex()


if __name__ == "__main__":
    print(*sys.argv[1:], os.getpid(), train(), flush=True)
