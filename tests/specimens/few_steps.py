"""One step, none at all, or thousands that take far less than a millisecond each."""

import argparse

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=1)
parser.add_argument("--by-hand", action="store_true", help="update without an optimizer")
options = parser.parse_args()

torch.manual_seed(0)
weight = torch.nn.Parameter(torch.ones(1))
optimizer = None if options.by_hand else torch.optim.SGD([weight], lr=1e-4)
for _ in range(options.steps):
    if optimizer is not None:
        optimizer.zero_grad()
    (weight * weight).backward()
    if optimizer is not None:
        optimizer.step()
        continue
    weight.data -= 1e-4 * weight.grad
    weight.grad = None
print(f"weight {weight.item()!r}")
