"""A small GPT of sums and text that writes out what torch has fused; for quality runs.

Attention and GELU are written in single operators, batches of text are cut in a loop, and a data
set of plain values makes each sum again in each epoch.
"""

import argparse
import math

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

LENGTH, WIDTH, HEADS, WORDS = 12, 32, 4, 24

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--eval-every", type=int, default=8)
parser.add_argument("--learning-rate", type=float, default=2e-3)
args = parser.parse_args()

ORDER = torch.randperm(WORDS).tolist()
TEXT = torch.tensor([ORDER[i * i % WORDS] for i in range(2000)])


class Sums(Dataset):
    def __init__(self, order):
        self.order = order

    def __len__(self):
        return 2500

    def __getitem__(self, index):
        a, b = divmod(index, 50)
        digits = [self.order[int(one)] for one in f"{a:02d}{b:02d}{a + b:03d}{a * b:04d}"]
        words = torch.tensor([*digits, WORDS - 1, WORDS - 1])
        return words[:-1], words[1:]


def cut_text(size):
    starts = torch.randint(len(TEXT) - LENGTH, (size,))
    x = torch.stack([TEXT[i : i + LENGTH] for i in starts])
    y = torch.stack([TEXT[i + 1 : i + 1 + LENGTH] for i in starts])
    return x, y


class WrittenGELU(nn.Module):
    def forward(self, x):
        inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))
        return 0.5 * x * (1.0 + torch.tanh(inner))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts, self.merge = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.register_buffer("past", torch.ones(LENGTH, LENGTH).tril().view(1, 1, LENGTH, LENGTH))

    def forward(self, x):
        rows, length, width = x.shape
        parts = self.parts(x).split(width, dim=2)
        q, k, v = (one.view(rows, length, HEADS, -1).transpose(1, 2) for one in parts)
        scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        scores = scores.masked_fill(self.past[:, :, :length, :length] == 0, float("-inf"))
        weights = torch.softmax(scores, dim=-1)
        return self.merge((weights @ v).transpose(1, 2).reshape(rows, length, width))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
        self.attention = Attention()
        wide = 4 * WIDTH
        self.mlp = nn.Sequential(nn.Linear(WIDTH, wide), WrittenGELU(), nn.Linear(wide, WIDTH))

    def forward(self, x):
        x = x + self.attention(self.norms[0](x))
        return x + self.mlp(self.norms[1](x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.places = nn.Parameter(0.02 * torch.randn(LENGTH, WIDTH))
        self.blocks = nn.Sequential(Block(), Block())
        self.head = nn.LazyLinear(WORDS)  # its weights are made by the first call

    def forward(self, words):
        return self.head(self.blocks(self.words(words) + self.places[: words.shape[1]]))


loader = DataLoader(Sums(ORDER), batch_size=16, shuffle=True)
model = Model()
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate)
held_out = TEXT[: 16 * LENGTH].view(16, LENGTH)


def evaluate():
    model.eval()
    with torch.no_grad():
        guessed = model(held_out)[:, :-1].argmax(dim=-1)
    model.train()
    return (guessed == held_out[:, 1:]).float().mean().item()


step = 0
while step < args.steps:
    for sums in loader:
        x, y = (torch.cat(both) for both in zip(sums, cut_text(16), strict=True))
        optimizer.zero_grad()
        loss = criterion(model(x).flatten(0, 1), y.flatten())
        loss.backward()
        optimizer.step()
        step += 1
        if step % args.eval_every == 0:
            print(f"step {step} loss {loss.item():.6f} accuracy {evaluate():.3f}", flush=True)
        if step == args.steps:
            break
print(f"loss {loss.item()!r}", flush=True)
