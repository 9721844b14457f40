"""Pictures and words in two towers, compared outside of modules by a learned temperature (CLIP)."""

import json
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

STEPS, ROWS, SIDE, CHANNELS, WORDS, VOCABULARY, WIDTH = 40, 32, 8, 6, 10, 50, 24


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(VOCABULARY, WIDTH)
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, words):
        return self.layer(self.table(words).mean(1))


torch.manual_seed(0)
pictures = nn.Sequential(
    nn.Conv2d(3, CHANNELS, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(CHANNELS * 64, WIDTH)
)
words = Words()
temperature = nn.Parameter(torch.tensor(2.0))
optimizer = torch.optim.AdamW([*pictures.parameters(), *words.parameters(), temperature], 0.001)
own = torch.arange(ROWS)
for _ in range(STEPS):
    seen = F.normalize(pictures(torch.randn(ROWS, 3, SIDE, SIDE)), dim=1)
    said = F.normalize(words(torch.randint(0, VOCABULARY, (ROWS, WORDS))), dim=1)
    scores = temperature.exp() * seen @ said.T
    loss = (F.cross_entropy(scores, own) + F.cross_entropy(scores.T, own)) / 2
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
FIRST = 2 * ROWS * CHANNELS * SIDE**2 * 3 * 9
LAYERS = 2 * ROWS * WIDTH * (CHANNELS * SIDE**2 + WIDTH)
PAIRS = 2 * ROWS * ROWS * WIDTH
Path("work.json").write_text(json.dumps([2 * FIRST + 3 * LAYERS + 3 * PAIRS] * STEPS))
