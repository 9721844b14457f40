"""LBFGS: the closure runs tens of times in each step, forward and backward with it."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
x = torch.linspace(-3, 3, 200).unsqueeze(1)
y = torch.sin(2 * x) + 0.1 * torch.randn(200, 1)
model = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.LBFGS(
    model.parameters(), max_iter=60, tolerance_grad=0, tolerance_change=0, line_search_fn=None
)
calls = 0


def closure():
    global calls
    calls += 1
    optimizer.zero_grad()
    loss = F.mse_loss(model(x), y)
    loss.backward()
    return loss


for step in range(10):
    loss = optimizer.step(closure)
    print(f"{step} loss {loss.item()!r}")
print(f"closures {calls}")
