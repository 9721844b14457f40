"""Trains in child processes: `children.py spawn|hogwild|workers [context]`."""

import os
import sys

import tiny
import torch
import torch.multiprocessing as mp
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

torch.set_num_threads(1)


def work(number, folder):
    print(number, os.getpid(), tiny.train(5 + number), flush=True)
    open(os.path.join(folder, f"done-{number}"), "w").close()


def spawn():
    mp.spawn(work, args=(os.getcwd(),), nprocs=2)


def share(number, model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(5 + number):
        loss = model(torch.ones(8, 4)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(number, os.getpid(), flush=True)


def hogwild():
    """The parent trains first, so that what it has pending must not be written twice."""
    print(0, os.getpid(), tiny.train(4), flush=True)
    model = torch.nn.Linear(4, 1).share_memory()
    children = [mp.get_context("fork").Process(target=share, args=(i, model)) for i in (1, 2)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    idle = os.fork()
    if idle == 0:
        os._exit(0)  # a child that never steps
    os.waitpid(idle, 0)


class Lines(IterableDataset):
    """A stream that must be closed in its worker."""

    def __iter__(self):
        number = torch.utils.data.get_worker_info().id
        try:
            for _ in range(8):
                yield torch.randn(4)
        finally:
            open(f"closed-{number}", "w").close()


def use(model, optimizer, loader):
    num_batches = 0
    for batch in loader:
        loss = model(batch[0] if isinstance(batch, list) else batch).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        num_batches += 1
    return num_batches


def workers(context):
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    more = {"num_workers": 2, "multiprocessing_context": context}
    rows = TensorDataset(torch.randn(32, 4))
    kept = DataLoader(rows, batch_size=4, persistent_workers=True, **more)
    num_batches = sum(use(model, optimizer, kept) for _ in range(2))
    if context == "fork":  # each spawned worker imports torch again
        num_batches += use(model, optimizer, DataLoader(rows, batch_size=4, **more))
        num_batches += use(model, optimizer, DataLoader(Lines(), batch_size=4, **more))
    print(os.getpid(), num_batches, flush=True)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
