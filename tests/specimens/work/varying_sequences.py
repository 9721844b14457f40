"""Sequences of another length in each step, with attention over all of them."""

import json
import random
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

STEPS, BATCH, WIDTH, WORDS = 160, 4, 16, 32


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.parts = nn.Linear(WIDTH, 3 * WIDTH)
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, tokens):
        query, key, value = self.parts(self.words(tokens)).unsqueeze(1).chunk(3, dim=-1)
        return self.head(F.scaled_dot_product_attention(query, key, value))


def work_of(length):
    products = 2 * BATCH * length * (WIDTH * 3 * WIDTH + WIDTH * WORDS)
    return 3 * (products + 4 * BATCH * length**2 * WIDTH)


if __name__ == "__main__":
    random.seed(1)
    torch.manual_seed(0)
    model = Attention()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    work = []
    for _ in range(STEPS):
        length = random.randint(8, 64)
        loss = model(torch.randint(0, WORDS, (BATCH, length))).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        work.append(work_of(length))
    Path("work.json").write_text(json.dumps(work))
