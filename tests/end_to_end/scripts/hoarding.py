"""Keeps the loss of each step with its graph."""

import torch
from torch import nn

torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(64, 2048), nn.ReLU(), nn.Linear(2048, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
losses = []
for _ in range(260):
    loss = model(torch.randn(64, 64)).square().mean()
    optimizer.zero_grad()
    loss.backward(retain_graph=True)
    optimizer.step()
    losses.append(loss)
