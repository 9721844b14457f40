"""Sequences that become longer in the middle of the run, twice."""

import json
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

LENGTHS = (16,) * 60 + (32,) * 40 + (64,) * 40
BATCH, WIDTH, WORDS = 4, 16, 32


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.parts = nn.Linear(WIDTH, 3 * WIDTH)
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, tokens):
        query, key, value = self.parts(self.words(tokens)).unsqueeze(1).chunk(3, dim=-1)
        return self.head(F.scaled_dot_product_attention(query, key, value))


torch.manual_seed(0)
model = Attention()
optimizer = torch.optim.SGD(model.parameters(), 0.01)
work = []
for length in LENGTHS:
    loss = model(torch.randint(0, WORDS, (BATCH, length))).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    products = 2 * BATCH * length * (WIDTH * 3 * WIDTH + WIDTH * WORDS)
    work.append(3 * (products + 4 * BATCH * length**2 * WIDTH))
Path("work.json").write_text(json.dumps(work))
