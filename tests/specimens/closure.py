"""A closure that does forward and backward inside `Adam.step`, both slow, as Lightning does."""

import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class SlowBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(0.010)
        return gradient


class Net(nn.Linear):
    def forward(self, x):
        time.sleep(0.010)
        return SlowBackward.apply(super().forward(x))


torch.manual_seed(0)
data = TensorDataset(torch.randn(200, 16), torch.randint(4, (200,)))
loader = DataLoader(data, batch_size=8, shuffle=True)
model = Net(16, 4)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

for x, y in loader:

    def closure(x=x, y=y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss

    loss = optimizer.step(closure)
print(f"loss {loss.item()!r}")
