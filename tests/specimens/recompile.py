"""Compiled model without dynamic shapes; the sequences grow, and each length compiles again."""

import time

import torch
from torch import Tensor, nn


@torch.library.custom_op("specimen::slow_copy", mutates_args=())
def slow_copy(x: Tensor) -> Tensor:
    time.sleep(0.010)
    return x.clone()


slow_copy.register_fake(torch.empty_like)
slow_copy.register_autograd(lambda ctx, gradient: gradient)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))

    def forward(self, x):  # ailment
        return slow_copy(self.layers(x).mean(1))


torch.manual_seed(0)
model = Net()
compiled = torch.compile(model, backend="aot_eager", dynamic=False)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for step in range(48):
    x, y = torch.randn(8, 10 + step // 6, 16), torch.randint(4, (8,))
    optimizer.zero_grad()
    loss = criterion(compiled(x), y)
    loss.backward()
    optimizer.step()
print(f"loss {loss.item()!r}")
