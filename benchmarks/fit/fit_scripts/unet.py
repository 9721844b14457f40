"""A U-Net on images, with group norms; what the skips keep is needed to the end."""

import sys

import torch
from torch import nn

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 20
BATCH, SIZE, WIDTH = 32, 64, 16


def convolve(before, after):
    return nn.Sequential(
        nn.Conv2d(before, after, 3, padding=1),
        nn.GroupNorm(4, after),
        nn.ReLU(),
        nn.Conv2d(after, after, 3, padding=1),
        nn.GroupNorm(4, after),
        nn.ReLU(),
    )


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = convolve(3, WIDTH), convolve(WIDTH, 2 * WIDTH)
        self.middle = convolve(2 * WIDTH, 4 * WIDTH)
        self.fourth, self.fifth = convolve(6 * WIDTH, 2 * WIDTH), convolve(3 * WIDTH, WIDTH)
        self.out = nn.Conv2d(WIDTH, 2, 1)

    def forward(self, x):
        small, large = nn.functional.max_pool2d, nn.functional.interpolate
        a = self.first(x)
        b = self.second(small(a, 2))
        c = self.middle(small(b, 2))
        d = self.fourth(torch.cat([large(c, scale_factor=2), b], 1))
        return self.out(self.fifth(torch.cat([large(d, scale_factor=2), a], 1)))


torch.manual_seed(0)
model = UNet()
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
images = torch.randn(2 * BATCH, 3, SIZE, SIZE)
masks = (images.mean(1) > 0).long()
for step in range(STEPS):
    chosen = slice(step % 2 * BATCH, (step % 2 + 1) * BATCH)
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(images[chosen]), masks[chosen])
    loss.backward()
    optimizer.step()
print(f"{loss.item():.4f}")
