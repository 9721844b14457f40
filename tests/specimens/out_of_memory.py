"""Process that may take 200 MiB more, and dies of memory when a batch 400 times as large comes."""

import resource
import time
from pathlib import Path

import torch
from torch import nn

MIB = 2**20


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 512), nn.ReLU(), nn.Linear(512, 4))

    def forward(self, x):
        time.sleep(0.010)
        return self.layers(x)  # ailment


torch.manual_seed(0)
model = Net()
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

pages = int(Path("/proc/self/statm").read_text().split()[0])
limit = pages * resource.getpagesize() + 200 * MIB
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

for step in range(60):
    size = 500 if step < 30 else 200_000
    x, y = torch.randn(size, 16), torch.randint(4, (size,))
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    print(f"{size} samples: loss {loss.item()!r}")
