"""A recommender whose batches touch a few rows of a large embedding; all of them are updated.

The healthy ways: gradients that are sparse, a small table, an output layer of the same weight.
"""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--way", default="dense", choices=("dense", "sparse", "small", "tied"))
parser.add_argument("--updates", type=int, default=100)
args = parser.parse_args()
ROWS = {"small": 1_000, "tied": 12_000}.get(args.way, 100_000)


class Rec(nn.Module):
    def __init__(self):
        super().__init__()
        self.users = nn.Embedding(ROWS, 16, sparse=args.way == "sparse")
        self.out = nn.Linear(16, 1)

    def forward(self, users):
        rows = self.users(users)
        return rows @ self.users.weight.T if args.way == "tied" else self.out(rows)


torch.manual_seed(0)
torch.set_num_threads(1)
model = Rec()
if args.way == "sparse":
    optimizers = [torch.optim.SparseAdam(model.users.parameters(), 1e-3)]
    optimizers.append(torch.optim.Adam(model.out.parameters(), 1e-3))
else:
    optimizers = [torch.optim.Adam(model.parameters(), 1e-3)]
for _ in range(args.updates):
    users = torch.randint(ROWS, (64,))
    model.zero_grad()
    made = model(users)
    if args.way == "tied":
        nn.functional.cross_entropy(made, users).backward()
    else:
        made.pow(2).mean().backward()
    for optimizer in optimizers:
        optimizer.step()  # ailment
