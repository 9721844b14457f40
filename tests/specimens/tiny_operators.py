"""Recurrent cell written as a Python loop over time: hundreds of operators of microseconds."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.entry, self.memory = nn.Linear(4, 16), nn.Linear(16, 16)
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        state = x.new_zeros(len(x), 16)
        for t in range(x.shape[1]):
            state = torch.tanh(self.entry(x[:, t]) + self.memory(state))
        return self.head(state)


torch.manual_seed(0)
data = TensorDataset(torch.randn(400, 80, 4), torch.randint(4, (400,)))
loader = DataLoader(data, batch_size=8, shuffle=True)
model = Recurrent()
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)  # ailment
    loss.backward()
    optimizer.step()
print(f"loss {loss.item()!r}")
