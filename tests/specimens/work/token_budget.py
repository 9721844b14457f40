"""Batches of about 2,048 words: few long sequences or many short ones, with attention."""

import json
import random
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

STEPS, BUDGET, WIDTH, WORDS = 150, 2048, 16, 32


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.parts = nn.Linear(WIDTH, 3 * WIDTH)
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, tokens):
        query, key, value = self.parts(self.words(tokens)).unsqueeze(1).chunk(3, dim=-1)
        return self.head(F.scaled_dot_product_attention(query, key, value))


random.seed(4)
torch.manual_seed(0)
model = Attention()
optimizer = torch.optim.SGD(model.parameters(), 0.01)
work = []
for _ in range(STEPS):
    length = random.randint(16, 512)
    rows = BUDGET // length
    loss = model(torch.randint(0, WORDS, (rows, length))).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    products = 2 * rows * length * (WIDTH * 3 * WIDTH + WIDTH * WORDS)
    work.append(3 * (products + 4 * rows * length**2 * WIDTH))
Path("work.json").write_text(json.dumps(work))
