"""Trains a small model of repeated blocks, and prints a digest of its losses and weights."""

import argparse
import hashlib

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=12)
parser.add_argument("--clip", action="store_true")
parser.add_argument("--accumulate", type=int, default=1)
parser.add_argument("--late-rate", action="store_true")
options = parser.parse_args()


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(32)
        self.one, self.two = nn.Linear(32, 128), nn.Linear(128, 32)

    def forward(self, x):
        inner = nn.functional.gelu(self.one(self.norm(x)))
        return x + self.two(nn.functional.dropout(inner, 0.1, self.training))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(6))
        self.head = nn.Linear(32, 8)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


torch.manual_seed(0)
torch.set_num_threads(1)
model = Net()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
digest = hashlib.sha256()
for step in range(options.steps):
    optimizer.zero_grad()
    for _ in range(options.accumulate):
        loss = nn.functional.cross_entropy(model(torch.randn(16, 32)), torch.randint(8, (16,)))
        loss.backward()
    if options.clip:
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    if options.late_rate:
        optimizer.param_groups[0]["lr"] = 1e-3 / (step + 1)
    optimizer.step()
    digest.update(loss.detach().numpy().tobytes())
for parameter in model.parameters():
    digest.update(parameter.detach().numpy().tobytes())
print(digest.hexdigest())
