"""A small GPT whose activation writes GELU out in single operators.

`--kind` says how: `new` as minGPT and transformers, `fast` factored out, `erf` the exact one.
`thin` is `new` where the activation is a small part of the model. `scaled` is another function,
which torch's GELU must not replace.
"""

import argparse
import math

import torch
from torch import nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--rows", type=int, default=4)
parser.add_argument("--length", type=int, default=64)
parser.add_argument("--width", type=int, default=64)
parser.add_argument("--kind", choices=["new", "fast", "erf", "thin", "scaled"], default="new")
args = parser.parse_args()
HEADS = 4
INNER, VOCABULARY = (args.width // 4, 2048) if args.kind == "thin" else (4 * args.width, 64)


class NewGELU(nn.Module):
    def forward(self, x):
        inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))
        return 0.5 * x * (1.0 + torch.tanh(inner))


class FastGELU(nn.Module):
    def forward(self, x):
        return 0.5 * x * (1.0 + torch.tanh(x * 0.7978845608 * (1.0 + 0.044715 * x * x)))


class ErfGELU(nn.Module):
    def forward(self, x):
        return x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))


class ScaledGELU(nn.Module):
    def forward(self, x):
        return 0.85 * x * (1.0 + torch.erf(x / math.sqrt(2.0)))


KINDS = {"fast": FastGELU, "erf": ErfGELU, "scaled": ScaledGELU}


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(args.width), nn.LayerNorm(args.width)])
        self.parts = nn.Linear(args.width, 3 * args.width)
        self.merge = nn.Linear(args.width, args.width)
        act = KINDS.get(args.kind, NewGELU)()
        self.mlp = nn.Sequential(nn.Linear(args.width, INNER), act, nn.Linear(INNER, args.width))

    def forward(self, x):
        parts = self.parts(self.norms[0](x)).chunk(3, dim=-1)
        q, k, v = (p.unflatten(-1, (HEADS, -1)).transpose(1, 2) for p in parts)
        y = scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.merge(y.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norms[1](x))


torch.manual_seed(0)
model = nn.Sequential(
    nn.Embedding(VOCABULARY, args.width),
    Block(),
    Block(),
    nn.Linear(args.width, VOCABULARY),
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(args.steps):
    words = torch.randint(VOCABULARY, (args.rows, args.length + 1))
    words[:, 1::2] = words[:, :-1:2]  # each second word repeats the one before
    logits = model(words[:, :-1])
    loss = cross_entropy(logits.flatten(0, 1), words[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
squares = sum(one.detach().double().square().sum() for one in model.parameters())
print(f"weights {squares.item()!r} loss {loss.item()!r}")
