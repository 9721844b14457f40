"""Two processes that share the weights and no process group: one of them makes more steps."""

import torch
import torch.multiprocessing as mp
from torch import nn


def work(model, steps):
    torch.set_num_threads(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(steps):
        loss = model(torch.randn(8, 16)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    shared = nn.Linear(16, 16)
    shared.share_memory()
    workers = [mp.Process(target=work, args=(shared, steps)) for steps in (30, 50)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
