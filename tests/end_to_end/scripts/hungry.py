"""Blocks on wide rows: what they keep for the backward is nearly all of the memory.

--steps N  how many updates.
"""

import sys

import torch
from torch import nn

STEPS = int(sys.argv[sys.argv.index("--steps") + 1]) if "--steps" in sys.argv else 6
ROWS, WIDTH = 8192, 64


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        return x + torch.tanh(self.down(torch.sigmoid(torch.tanh(self.up(x)))))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(20))
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


torch.manual_seed(0)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
rows = torch.randn(ROWS, WIDTH)
labels = (rows[:, 0] > 0).long()
for step in range(STEPS):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(rows), labels)
    loss.backward()
    optimizer.step()
    print(step, loss.item(), flush=True)
