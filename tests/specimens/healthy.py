"""Healthy textbook loop: compute has about three quarters of the step, input next to nothing."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class SlowBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(0.020)
        return gradient


class Net(nn.Linear):
    def forward(self, x):
        time.sleep(0.010)
        return SlowBackward.apply(super().forward(x))


def write_log(loss):
    time.sleep(0.008)
    return loss.detach()


torch.manual_seed(0)
data = TensorDataset(torch.randn(240, 16), torch.randint(4, (240,)))
loader = DataLoader(data, batch_size=8, shuffle=True)
model = Net(16, 4)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    write_log(loss)
print(f"loss {loss.item()!r}")
