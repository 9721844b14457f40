"""Trains a little, then prints what a recipe may have put on."""

import os
import sys

import torch

torch.manual_seed(0)
model = torch.nn.Linear(8, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(30):
    loss = model(torch.randn(16, 8)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(torch.get_float32_matmul_precision(), os.environ.get("MALLOC_TOP_PAD_"), *sys.argv[1:])
sys.exit(int(os.environ.get("EXIT", "0")))
