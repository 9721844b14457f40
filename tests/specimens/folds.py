"""Four folds one after another in one process, each with a network and optimizers of its own."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--optimizers", type=int, default=1, help="in each fold")
num_optimizers = parser.parse_args().optimizers

torch.manual_seed(0)
x, y = torch.randn(80, 16), torch.randint(4, (80,))
for fold in range(4):
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    parts = [model[0], model[2]][:num_optimizers] if num_optimizers > 1 else [model]
    optimizers = [torch.optim.Adam(part.parameters(), lr=1e-2) for part in parts]
    kept = [i for i in range(80) if i % 4 != fold]
    for begin in range(0, 60, 6):
        chosen = kept[begin : begin + 6]
        loss = F.cross_entropy(model(x[chosen]), y[chosen])
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
    model.eval()
    with torch.no_grad():
        right = (model(x[fold::4]).argmax(1) == y[fold::4]).float().mean()
    print(f"fold {fold} loss {loss.item()!r} right {right.item():.2f}")
