"""Data-parallel training on two gloo ranks, of which another one has longer rows in each step."""

import sys

import _leave  # noqa: F401
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

LENGTHS = (16, 256)


class Model(nn.Module):
    def __init__(self, dim=96):
        super().__init__()
        self.embedding = nn.Embedding(100, dim)
        self.hidden = nn.Sequential(nn.Linear(dim, 4 * dim), nn.ReLU(), nn.Linear(4 * dim, dim))
        self.head = nn.Linear(dim, 100)

    def forward(self, ids):
        return self.head(self.hidden(self.embedding(ids)))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(Model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen = []
    for step in range(40):
        ids = torch.randint(4, 100, (8, LENGTHS[(step + rank) % 2]))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
        loss.backward()
        optimizer.step()
        seen.append(ids.numel())
    told = " ".join(map(str, seen))
    sys.stdout.write(f"rank {rank} elements {told}.\n")  # one write: the ranks share the pipe
    sys.stdout.flush()
    dist.barrier()
    del model  # freed after its group, torch may wait for ever
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
