"""Textbook loop, its model slow, with autograd's anomaly detection left on."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Linear):
    def forward(self, x):
        time.sleep(0.010)
        return super().forward(x)


torch.autograd.set_detect_anomaly(True)  # ailment
torch.manual_seed(0)
data = TensorDataset(torch.randn(320, 16), torch.randint(4, (320,)))
loader = DataLoader(data, batch_size=8, shuffle=True)
model = Net(16, 4)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
print(f"loss {loss.item()!r}")
