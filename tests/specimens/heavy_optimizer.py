"""Few rows and many weights: the update of the optimizer takes longer than forward and backward."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(*(nn.Linear(500, 500) for _ in range(4)))
optimizer = torch.optim.Rprop(model.parameters(), lr=1e-4, foreach=False)
x = torch.randn(2, 500)
for _ in range(40):
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
print(f"loss {loss.item()!r}")
