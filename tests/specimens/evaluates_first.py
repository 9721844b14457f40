"""A sanity check first: several batches are evaluated before anything has been trained."""

import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Linear):
    def forward(self, x):
        time.sleep(0.005 if self.training else 0.020)
        return super().forward(x)


@torch.no_grad()
def evaluate():
    model.eval()
    right = sum((model(x).argmax(1) == y).sum().item() for x, y in validation)
    model.train()
    return right


torch.manual_seed(0)
data = TensorDataset(torch.randn(240, 16), torch.randint(4, (240,)))
loader = DataLoader(data, batch_size=8, shuffle=True)
validation = DataLoader(TensorDataset(*data[:80]), batch_size=8)
model = Net(16, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

print(f"right {evaluate()}")
for x, y in loader:
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
print(f"loss {loss.item()!r}")
