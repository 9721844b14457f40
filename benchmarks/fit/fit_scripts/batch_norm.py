"""A residual convnet with batch norms, whose statistics forbid parts of a batch."""

import sys

import torch
from torch import nn

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 20
BATCH, SIZE, WIDTH = 64, 32, 32


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(WIDTH, WIDTH, 3, padding=1, bias=False)
        self.second = nn.Conv2d(WIDTH, WIDTH, 3, padding=1, bias=False)
        self.norm, self.last = nn.BatchNorm2d(WIDTH), nn.BatchNorm2d(WIDTH)

    def forward(self, x):
        inner = torch.relu(self.norm(self.first(x)))
        return torch.relu(x + self.last(self.second(inner)))


torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(3, WIDTH, 3, padding=1),
    *(Block() for _ in range(5)),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(WIDTH, 10),
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
images, labels = torch.randn(4 * BATCH, 3, SIZE, SIZE), torch.randint(0, 10, (4 * BATCH,))
for step in range(STEPS):
    chosen = slice(step % 4 * BATCH, (step % 4 + 1) * BATCH)
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(images[chosen]), labels[chosen])
    loss.backward()
    optimizer.step()
print(f"{loss.item():.4f}")
