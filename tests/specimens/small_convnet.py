"""A small convnet with batch norm, dropout and an evaluation now and then; for quality runs.

`--ranks` trains it on as many ranks as torchrun started, with DistributedDataParallel.
"""

import argparse
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--ranks", action="store_true")
parser.add_argument("--eval-every", type=int, default=8)
parser.add_argument("--seed", type=int)
parser.add_argument("--learning-rate", type=float, default=2e-3)
args = parser.parse_args()
if args.seed is not None:
    torch.manual_seed(args.seed)

if args.ranks:
    torch.distributed.init_process_group("gloo")
inputs = torch.randn(512, 3, 12, 12)
labels = (inputs.mean(dim=(2, 3)) @ torch.randn(3, 8)).argmax(dim=1)
inputs += 0.3 * torch.randn(8, 3, 12, 12)[labels]
data = TensorDataset(inputs, labels)
sampler = DistributedSampler(data) if args.ranks else None
loader = DataLoader(data, batch_size=16, shuffle=sampler is None, sampler=sampler)
held_out = DataLoader(TensorDataset(inputs[:64], labels[:64]), batch_size=32)
model = nn.Sequential(
    nn.Conv2d(3, 16, 3, padding=1),
    nn.BatchNorm2d(16),
    nn.ReLU(),
    nn.Conv2d(16, 16, 3, padding=1),
    nn.BatchNorm2d(16),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(4),
    nn.Flatten(),
    nn.Linear(256, 64),
    nn.ReLU(),
    nn.Dropout(0.3),
    nn.Linear(64, 8),
)
if args.ranks:
    model = nn.parallel.DistributedDataParallel(model)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate)


def evaluate():
    model.eval()
    with torch.no_grad():
        right = sum(int((model(x).argmax(dim=1) == y).sum()) for x, y in held_out)
    model.train()
    return right / 64


step = 0
while step < args.steps:
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        step += 1
        if step % args.eval_every == 0:
            print(f"step {step} loss {loss.item():.6f} accuracy {evaluate():.3f}", flush=True)
        if step == args.steps:
            break
print(f"loss {loss.item()!r}", flush=True)
if args.ranks:
    torch.distributed.barrier()
    os._exit(0)
