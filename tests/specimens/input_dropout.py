"""A graph network's habit: a dropout on wide inputs takes longer than all products together."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.6)
        self.first = nn.Linear(400, 8)
        self.last = nn.Linear(8, 3)

    def forward(self, x):
        return self.last(torch.relu(self.first(self.drop(x))))


torch.manual_seed(0)
x, y = torch.randn(1000, 400), torch.randint(3, (1000,))
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(40):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
print(f"loss {loss.item()!r}")
