"""A model of torch's that Keras trains, with an optimizer of its own; `--every N` accumulates."""

import argparse

import torch
from keras import SGD, Trainer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--every", type=int, default=1)
args = parser.parse_args()

torch.manual_seed(0)
x = torch.randn(120, 16)
loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=8)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
trainer = Trainer(model, SGD(0.01, gradient_accumulation_steps=args.every))
print(f"loss {trainer.fit(loader, epochs=2)!r}")  # ailment
