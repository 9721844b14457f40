"""A wrapper around the optimizer that lets only every fourth step through."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--kind", default="subclass", choices=("plain", "subclass", "first"))
kind = parser.parse_args().kind


class Plain:
    """An object of no class of torch's."""

    def __init__(self, inner):
        self.inner, self.calls = inner, 0

    def step(self):
        self.calls += 1
        if self.calls % 4 == 0:
            self.inner.step()

    def zero_grad(self):
        if self.calls % 4 == 0:
            self.inner.zero_grad()


class Every(torch.optim.Optimizer):
    """An optimizer itself, so that torch calls the step hooks of both."""

    def __init__(self, inner, passes_at):
        super().__init__(inner.param_groups, {})
        self.inner, self.passes_at, self.calls = inner, passes_at, 0

    def step(self, closure=None):
        self.calls += 1
        if self.calls % 4 != self.passes_at:
            return None
        return self.inner.step(closure)

    def zero_grad(self, set_to_none=True):
        if self.calls % 4 == self.passes_at:
            self.inner.zero_grad(set_to_none)


torch.manual_seed(0)
model = nn.Linear(16, 4)
inner = torch.optim.SGD(model.parameters(), lr=0.1)
optimizer = Plain(inner) if kind == "plain" else Every(inner, int(kind == "first"))

for _ in range(80):
    x, y = torch.randn(8, 16), torch.randint(4, (8,))
    loss = F.cross_entropy(model(x), y) / 4
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(f"loss {loss.item()!r} weights {model.weight.sum().item()!r}")
