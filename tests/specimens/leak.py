"""Textbook loop that keeps the output of each step for later: 2 MiB a step, never let go."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Linear):
    def forward(self, x):
        time.sleep(0.060)
        return super().forward(x)


torch.manual_seed(0)
data = TensorDataset(torch.randn(1040, 16), torch.randint(4, (1040,)))
loader = DataLoader(data, batch_size=8, shuffle=True)
model = Net(16, 65_536)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
outputs = []

for x, y in loader:
    optimizer.zero_grad()
    output = model(x)
    loss = criterion(output, y)
    loss.backward()
    optimizer.step()
    outputs.append(output.detach())  # ailment
print(f"loss {loss.item()!r} outputs {len(outputs)}")
