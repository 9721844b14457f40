"""Gated layers that take the tokens of a text one at a time: thousands of tiny operators."""

from __future__ import annotations

import torch
from _blocks import train
from torch import Tensor, nn
from torch.nn import functional

BATCH, LENGTH, WIDTH = 4, 96, 48


class Gated(nn.Module):
    """One gated layer; tokens do not meet, so one at a time and all at once are the same."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.value = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.is_whole = False

    def forward(self, x: Tensor) -> Tensor:
        if self.is_whole:
            return self.mix(x)
        return torch.stack([self.mix(token) for token in x.unbind(1)], 1)

    def mix(self, x: Tensor) -> Tensor:
        return x + torch.sigmoid(self.gate(x)) * torch.tanh(self.value(x))


torch.manual_seed(0)
layers = [Gated() for _ in range(3)]
table = nn.Embedding(30_000, WIDTH)
model = nn.Sequential(table, *layers, nn.Linear(WIDTH, 64))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
tokens, wanted = torch.randint(30_000, (BATCH, LENGTH)), torch.randint(64, (BATCH, LENGTH))


def step(without: str) -> None:
    for one in layers:
        one.is_whole = without == "launch"
    optimizer.zero_grad()
    loss = functional.cross_entropy(model(tokens).flatten(0, 1), wanted.flatten())
    loss.backward()
    if without != "optimizer":
        optimizer.step()


train(step, ("launch", "optimizer"))
