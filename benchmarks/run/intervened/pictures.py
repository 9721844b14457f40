"""A small convolution net that waits for pictures, made one by one in the training process."""

from __future__ import annotations

import torch
from _blocks import train
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

BATCH, SIZE = 8, 64


class Pictures(Dataset[tuple[Tensor, int]]):
    """Noise, blurred and turned as an augmentation would do it."""

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        picture = torch.rand(3, SIZE, SIZE)
        for _ in range(6):
            picture = functional.avg_pool2d(picture, 3, 1, 1).flip(2)
        return picture, index % 10


torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(3, 48, 3, padding=1),
    nn.ReLU(),
    nn.Conv2d(48, 96, 3, stride=2, padding=1),
    nn.ReLU(),
    nn.Conv2d(96, 96, 3, stride=2, padding=1),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(96, 10),
)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
batches = iter(DataLoader(Pictures(), batch_size=BATCH))
kept = next(batches)


def step(without: str) -> None:
    torch.set_num_threads(2 if without == "threads" else THREADS)
    pictures, labels = kept if without == "input" else next(batches)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=without == "precision"):
        loss = functional.cross_entropy(model(pictures).float(), labels)
    loss.backward()
    optimizer.step()


THREADS = torch.get_num_threads()
train(step, ("input", "precision", "threads"))
