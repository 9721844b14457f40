"""A small GPT on characters; attention and the logits of a vocabulary fill the memory."""

import sys

import torch
from torch import nn

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 20
BATCH, TIME, WIDTH, HEADS, DEPTH, VOCABULARY = 16, 128, 128, 4, 6, 2048


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (
            one.view(b, t, HEADS, -1).transpose(1, 2) for one in self.qkv(x).split(WIDTH, dim=2)
        )
        scores = q @ k.transpose(-2, -1) * (q.size(-1) ** -0.5)
        mask = torch.ones(t, t, dtype=torch.bool).triu(1)
        weights = scores.masked_fill(mask, float("-inf")).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).reshape(b, t, WIDTH))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x):
        x = x + self.attention(self.first(x))
        return x + self.mlp(self.second(x))


class Gpt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(TIME, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(DEPTH))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places.weight[: tokens.size(1)]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


torch.manual_seed(0)
model = Gpt()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
text = torch.randint(0, VOCABULARY, (100_000,))
for _ in range(STEPS):
    begins = torch.randint(0, len(text) - TIME - 1, (BATCH,))
    x = torch.stack([text[i : i + TIME] for i in begins])
    y = torch.stack([text[i + 1 : i + 1 + TIME] for i in begins])
    logits = model(x)
    loss = nn.functional.cross_entropy(logits.view(-1, VOCABULARY), y.view(-1))
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
print(f"{loss.item():.4f}")
