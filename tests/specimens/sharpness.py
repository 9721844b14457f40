"""SAM: two forward and backward passes a step, of which the second decides."""

import torch
import torch.nn.functional as F
from torch import nn


class SAM(torch.optim.Optimizer):
    """The usual shape: `first_step` climbs, `second_step` goes back and lets the base step."""

    def __init__(self, parameters, base, rho=0.05, **settings):
        super().__init__(parameters, {"rho": rho, **settings})
        self.base = base(self.param_groups, **settings)

    @torch.no_grad()
    def first_step(self):
        norm = torch.stack([p.grad.norm() for p in self.parameters()]).norm()
        for p in self.parameters():
            climb = p.grad * self.param_groups[0]["rho"] / (norm + 1e-12)
            p.add_(climb)
            self.state[p]["climb"] = climb
        self.zero_grad()

    @torch.no_grad()
    def second_step(self):
        for p in self.parameters():
            p.sub_(self.state[p]["climb"])
        self.base.step()
        self.zero_grad()

    def parameters(self):
        return self.param_groups[0]["params"]


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
optimizer = SAM(model.parameters(), torch.optim.SGD, lr=0.1)

for _ in range(25):
    x, y = torch.randn(8, 16), torch.randint(4, (8,))
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.first_step()
    F.cross_entropy(model(x), y).backward()
    optimizer.second_step()
print(f"loss {loss.item()!r}")
