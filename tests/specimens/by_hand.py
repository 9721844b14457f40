"""Weights updated by hand: no optimizer ever steps, or only after forty steps (--then)."""

import argparse
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--way", default="data", choices=("data", "no_grad", "grad"))
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--then", type=int, default=0, help="steps of an optimizer after them")
parser.add_argument("--say", action="store_true", help="when each step ended")
parser.add_argument("--pause", type=float, default=0.002)
options = parser.parse_args()

torch.manual_seed(0)
num_samples = 4 * (options.steps + options.then)
data = TensorDataset(torch.randn(num_samples, 16), torch.randint(4, (num_samples,)))
loader = DataLoader(data, batch_size=4, shuffle=True)
model = nn.Linear(16, 4)
lr = 0.05


def update(loss):
    if options.way == "grad":
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        with torch.no_grad():
            for p, gradient in zip(model.parameters(), gradients, strict=True):
                p -= lr * gradient
        return
    loss.backward()
    time.sleep(options.pause)
    if options.way == "data":
        for p in model.parameters():
            p.data -= lr * p.grad
            p.grad = None
    else:
        with torch.no_grad():
            for p in model.parameters():
                p -= lr * p.grad
                p.grad.zero_()


optimizer = None
for i, (x, y) in enumerate(loader):
    loss = F.cross_entropy(model(x), y)
    if i < options.steps:
        update(loss)
    else:
        optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=lr)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if options.say:
        print(i, time.time(), flush=True)
print(f"loss {loss.item()!r} weights {model.weight.sum().item()!r}")
