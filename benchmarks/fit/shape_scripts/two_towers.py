"""A recommender of two towers (300 wide, code of 50) over 100 fields each, with a larger batch."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy


def tower(fields):
    return nn.Sequential(
        nn.Linear(fields, 300), nn.ReLU(), nn.Linear(300, 170), nn.ReLU(), nn.Linear(170, 50)
    )


torch.manual_seed(0)
users, items = tower(100), tower(100)
optimizer = torch.optim.Adagrad([*users.parameters(), *items.parameters()], lr=0.01)

for _ in range(20):
    left, right = torch.randn(512, 100), torch.randn(512, 100)
    optimizer.zero_grad()
    scores = users(left) @ items(right).T
    cross_entropy(scores, torch.arange(512)).backward()
    optimizer.step()
