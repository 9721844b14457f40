"""A network is fitted to a function by one step of LBFGS, which evaluates its closure often."""

import torch
from torch import nn

torch.manual_seed(0)
x = torch.linspace(-3, 3, 100).unsqueeze(1)
y = torch.sin(3 * x) * x.cos()
model = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.LBFGS(
    model.parameters(),
    max_iter=300,
    max_eval=400,
    tolerance_grad=0,
    tolerance_change=0,
    line_search_fn="strong_wolfe",
)
calls = 0


def closure():
    global calls
    calls += 1
    optimizer.zero_grad()
    loss = (model(x) - y).square().mean()
    loss.backward()
    return loss


loss = optimizer.step(closure)
print(f"loss {loss.item()!r} closures {calls}")
