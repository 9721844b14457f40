"""A layer on a bag of words: its input is almost all zeros, and the product is dense."""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--dense", action="store_true", help="no zeros in the input")
parser.add_argument("--drop", type=float, default=0.0, help="of the words")
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--fresh", action="store_true", help="another matrix in each step")
options = parser.parse_args()

torch.manual_seed(options.seed)
words = torch.rand(512, 2048)
if not options.dense:
    words = words * (torch.rand(512, 2048) < 0.01)
labels = torch.randint(0, 7, (512,))
model = nn.Sequential(nn.Linear(2048, 256), nn.ReLU(), nn.Linear(256, 7))
if options.drop:
    model.insert(0, nn.Dropout(options.drop))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(options.steps):
    given = words.clone() if options.fresh else words
    loss = nn.functional.cross_entropy(model(given), labels)  # ailment
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
squares = sum(one.detach().double().square().sum() for one in model.parameters())
print(f"weights {squares.item()!r} loss {loss.item()!r}")
