"""A model of clicks whose data set lies in a package, and makes its batches in another module.

`--source file` reads them from a file; that branch is in the same method and does not run here.
"""

import argparse

import torch
from clicks.batches import ClickBatches, first_of
from torch import nn
from torch.utils.data import DataLoader

ROWS = 40

parser = argparse.ArgumentParser()
parser.add_argument("--source", choices=["random", "file"], default="random")
args = parser.parse_args()
torch.manual_seed(0)
tables = nn.ModuleList([nn.EmbeddingBag(500, 8, mode="sum") for _ in range(4)])
head = nn.Linear(4 * 8, 1)
model = nn.ModuleList([tables, head])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
batches = ClickBatches(num_batches=40, size=ROWS, source=args.source)
for x, y in DataLoader(batches, batch_size=1, collate_fn=first_of):
    found = [table(*one) for table, one in zip(tables, x, strict=True)]
    loss = nn.functional.binary_cross_entropy_with_logits(head(torch.cat(found, 1)), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"loss {loss.item()!r}")
