"""Trains a tiny model of tokens as people write it; each epoch says what it saw, as JSON."""

import json

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
tokens = torch.randint(2, 50, (96, 64))
loader = DataLoader(TensorDataset(tokens, tokens), batch_size=4, shuffle=True)
model = nn.Sequential(nn.Embedding(50, 16), nn.Linear(16, 50))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for _ in range(2):
    model.train()
    shapes = []
    for x, y in loader:
        shapes.append(list(x.shape))
        scores = model(x)
        nn.functional.cross_entropy(scores.flatten(0, 1), y.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
    print(json.dumps({"shapes": shapes, "rate": optimizer.param_groups[0]["lr"]}))
