"""Sequences of 16 to 1,024 words at random, with attention as products over the whole square."""

import json
import random
from pathlib import Path

import torch
from torch import nn

STEPS, BATCH, WIDTH, WORDS = 150, 2, 16, 32


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.parts = nn.Linear(WIDTH, 3 * WIDTH)
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, tokens):
        query, key, value = self.parts(self.words(tokens)).chunk(3, dim=-1)
        return self.head((query @ key.transpose(1, 2)).softmax(-1) @ value)


def work_of(length):
    products = 2 * BATCH * length * (WIDTH * 3 * WIDTH + WIDTH * WORDS)
    return 3 * (products + 4 * BATCH * length**2 * WIDTH)


random.seed(3)
torch.manual_seed(0)
model = Attention()
optimizer = torch.optim.SGD(model.parameters(), 0.01)
work = []
for _ in range(STEPS):
    length = random.randint(16, 1024)
    loss = model(torch.randint(0, WORDS, (BATCH, length))).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    work.append(work_of(length))
Path("work.json").write_text(json.dumps(work))
