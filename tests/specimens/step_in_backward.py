"""One optimizer a parameter, stepped and zeroed in a hook as soon as its gradient is there."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
optimizers = {p: torch.optim.Adam([p], lr=1e-3, foreach=False) for p in model.parameters()}


def step(parameter):
    optimizers[parameter].step()
    optimizers[parameter].zero_grad()


for parameter in model.parameters():
    parameter.register_post_accumulate_grad_hook(step)

for i in range(30):
    x, y = torch.randn(32, 16), torch.randint(4, (32,))
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    if i % 10 == 0:
        print(f"{i} loss {loss.item()!r}")
