"""A small language model whose causal attention is written out in single operators.

`--kind` writes it otherwise (`einsum` in another order of dimensions, `added`: masks that are
added), or makes it something that a fused kernel must not replace: with dropout of weights, with
weights that are used once more, or with a normalization that is no softmax.
"""

import argparse
import math

import torch
from torch import nn
from torch.nn.functional import cross_entropy, softmax

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--rows", type=int, default=4)
parser.add_argument("--length", type=int, default=256)
parser.add_argument("--width", type=int, default=64)
parser.add_argument("--heads", type=int, default=4)
KINDS = ["plain", "einsum", "added", "dropout", "used", "linear"]
parser.add_argument("--kind", choices=KINDS, default="plain")
args = parser.parse_args()


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.Linear(args.width, 3 * args.width)
        self.merge = nn.Linear(args.width, args.width)
        self.dropout = nn.Dropout(0.1 if args.kind == "dropout" else 0.0)
        past = torch.ones(args.length, args.length).tril()
        self.register_buffer("past", past.view(1, 1, args.length, args.length))
        self.entropy = 0.0

    def forward(self, x):
        rows, length, width = x.shape
        parts = self.parts(x).split(width, dim=2)
        if args.kind == "einsum":
            return self.merge(self.by_einsum(*parts).reshape(rows, length, width))
        q, k, v = (p.view(rows, length, args.heads, -1).transpose(1, 2) for p in parts)
        scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        hidden = self.past[:, :, :length, :length] == 0
        if args.kind == "added":
            weights = softmax(scores + -1e9 * hidden.to(scores.dtype), dim=-1)
        elif args.kind == "linear":
            weights = scores.relu().masked_fill(hidden, 0.0)
            weights = weights / (weights.sum(-1, keepdim=True) + 1.0)
        else:
            weights = softmax(scores.masked_fill(hidden, float("-inf")), dim=-1)
        weights = self.dropout(weights)
        if args.kind == "used":
            self.entropy = -(weights * (weights + 1e-9).log()).sum(-1).mean()
        return self.merge((weights @ v).transpose(1, 2).contiguous().view(rows, length, width))

    def by_einsum(self, q, k, v):
        q, k, v = (p.view(*p.shape[:2], args.heads, -1) for p in (q, k, v))
        length = q.shape[1]
        scores = torch.einsum("nqhd,nkhd->nhqk", [q, k]) / math.sqrt(k.size(-1))
        hidden = self.past[:, :, :length, :length] == 0
        weights = torch.softmax(scores.masked_fill(hidden, float("-1e20")), dim=3)
        return torch.einsum("nhql,nlhd->nqhd", [weights, v])


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(args.width), nn.LayerNorm(args.width)])
        self.attention = Attention()
        wide = 4 * args.width
        self.mlp = nn.Sequential(
            nn.Linear(args.width, wide), nn.GELU(), nn.Linear(wide, args.width)
        )

    def forward(self, x):
        x = x + self.attention(self.norms[0](x))
        return x + self.mlp(self.norms[1](x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(64, args.width)
        self.places = nn.Parameter(torch.randn(args.length, args.width) * 0.02)
        self.blocks = nn.Sequential(Block(), Block())
        self.head = nn.Linear(args.width, 64)

    def forward(self, words):
        return self.head(self.blocks(self.words(words) + self.places[: words.shape[1]]))


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
