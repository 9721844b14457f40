"""A small language model that steps a recurrent cell over its rows in a loop of its own.

`--kind fed_back` uses each state at once, so that no step can wait for the next one; `--cell` is
torch's LSTMCell or GRUCell.
"""

import argparse

import torch
from torch import nn
from torch.nn.functional import cross_entropy

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--rows", type=int, default=16)
parser.add_argument("--length", type=int, default=32)
parser.add_argument("--width", type=int, default=64)
parser.add_argument("--kind", choices=["plain", "fed_back"], default="plain")
CELLS = {"lstm": nn.LSTMCell, "gru": nn.GRUCell}
parser.add_argument("--cell", choices=CELLS, default="lstm")
args = parser.parse_args()


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(64, args.width)
        self.cell = CELLS[args.cell](args.width, args.width)
        self.head = nn.Linear(args.width, 64)

    def forward(self, words):
        x = self.words(words)
        zeros = x.new_zeros(len(x), args.width)
        states = (zeros, zeros) if args.cell == "lstm" else zeros
        found = []
        for t in range(x.shape[1]):
            states = self.cell(x[:, t], states)
            h = states[0] if args.cell == "lstm" else states
            found.append(self.head(h) if args.kind == "fed_back" else h)
        together = torch.stack(found, dim=1)
        return together if args.kind == "fed_back" else self.head(together)


torch.manual_seed(0)
model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(args.steps):
    words = torch.randint(64, (args.rows, args.length + 1))
    words[:, 1::2] = words[:, :-1:2]  # each second word repeats the one before
    logits = model(words[:, :-1])
    loss = cross_entropy(logits.flatten(0, 1), words[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
squares = sum(one.detach().double().square().sum() for one in model.parameters())
print(f"weights {squares.item()!r} loss {loss.item()!r}")
