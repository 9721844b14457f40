"""A small language model with a gated MLP of 8/3 the width, 65 characters and a width of 150."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention, silu

WIDTH, HEADS, LENGTH, CHARS = 150, 5, 64, 65
INNER = 8 * WIDTH // 3 + 3  # 403: rounded up carelessly


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.queries = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.gate = nn.Linear(WIDTH, INNER, bias=False)
        self.up = nn.Linear(WIDTH, INNER, bias=False)
        self.down = nn.Linear(INNER, WIDTH, bias=False)

    def forward(self, x):
        batch, length, _ = x.shape
        parts = self.queries(self.first(x)).view(batch, length, 3, HEADS, WIDTH // HEADS)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))
        y = self.second(x)
        return x + self.down(silu(self.gate(y)) * self.up(y))


torch.manual_seed(0)
model = nn.Sequential(
    nn.Embedding(CHARS, WIDTH), Block(), Block(), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CHARS)
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

for _ in range(20):
    text = torch.randint(CHARS, (16, LENGTH + 1))
    optimizer.zero_grad()
    logits = model(text[:, :-1])
    cross_entropy(logits.reshape(-1, CHARS), text[:, 1:].reshape(-1)).backward()
    optimizer.step()
