"""Small trainings for benchmarks of training changes: data from a folder, models for two cores.

MNIST as the four idx files (`*-ubyte.gz`), averaged over 2 x 2 pixels, or folders of small
pictures; residual, plain (VGG) and deep fully connected networks.
"""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import nn

Data = tuple[Any, Any, Any, Any]


def read_idx(path: Path) -> Any:
    """Return the array of an idx file (num, …), bytes."""
    raw = gzip.decompress(path.read_bytes())
    sizes = [int.from_bytes(raw[4 + 4 * i : 8 + 4 * i], "big") for i in range(raw[3])]
    return torch.frombuffer(bytearray(raw[4 + 4 * raw[3] :]), dtype=torch.uint8).view(sizes)


def mnist(folder: Path, *, num_train: int, num_test: int) -> Data:
    """Return images (num, 1, 14, 14) and labels of training and test: the first of each file."""
    found: list[Any] = []
    for part, num in (("train", num_train), ("t10k", num_test)):
        images = read_idx(folder / f"{part}-images-idx3-ubyte.gz")[:num].float().div(255)
        images = nn.functional.avg_pool2d(images.sub(0.13).div(0.31).unsqueeze(1), 2)
        found += [images, read_idx(folder / f"{part}-labels-idx1-ubyte.gz")[:num].long()]
    return tuple(found)  # type: ignore[return-value]


def pictures(folder: Path, *, num_train: int, num_test: int) -> Data:
    """Return images (num, 3, height, width) and labels of FOLDER/train and FOLDER/test.

    The first of every class, equally many of each, one scale for all channels.
    """
    from PIL import Image

    found: list[Any] = []
    for part, num in (("train", num_train), ("test", num_test)):
        classes = sorted(one for one in (folder / part).iterdir() if one.is_dir())
        images, labels = [], []
        for label, place in enumerate(classes):
            for file in sorted(place.iterdir())[: num // len(classes)]:
                with Image.open(file) as image:
                    images.append(numpy.asarray(image.convert("RGB")))
                labels.append(label)
        values = torch.from_numpy(numpy.stack(images)).permute(0, 3, 1, 2).float().div(255)
        found += [values.sub(0.47).div(0.25).contiguous(), torch.tensor(labels)]
    return tuple(found)  # type: ignore[return-value]


class Block(nn.Module):
    """Two convolutions with batch norm around a skip connection."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.one = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.two = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.norm_one, self.norm_two = nn.BatchNorm2d(after), nn.BatchNorm2d(after)
        self.skip = nn.Conv2d(before, after, 1, stride, bias=False) if stride > 1 else None

    def forward(self, x: Any) -> Any:
        made = self.norm_two(self.two(self.norm_one(self.one(x)).relu()))
        return (made + (x if self.skip is None else self.skip(x))).relu()


def resnet(*, width: int, blocks: int, channels: int = 1) -> nn.Module:
    """Return a residual network in three stages: 6 * blocks + 2 layers, as of He et al. (2016)."""
    layers: list[nn.Module] = [
        nn.Conv2d(channels, width, 3, 1, 1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
    ]
    before = width
    for stage in range(3):
        for number in range(blocks):
            after = width * 2**stage
            layers.append(Block(before, after, 2 if stage and not number else 1))
            before = after
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 10))


def plain(*, width: int, blocks: int) -> nn.Module:
    """Return the same without skips and without batch norm: stages of convolutions, as VGG has."""
    layers: list[nn.Module] = []
    before = 1
    for stage in range(3):
        for _ in range(2 * blocks):
            after = width * 2**stage
            layers += [nn.Conv2d(before, after, 3, 1, 1), nn.ReLU()]
            before = after
        layers.append(nn.MaxPool2d(2, ceil_mode=True))
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 10))


def vgg11() -> nn.Module:
    """Return VGG-11 with batch norm for pictures of 32 x 32 (Simonyan and Zisserman, 2015)."""
    layers: list[nn.Module] = []
    before = 3
    for width in (64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0):
        if not width:
            layers.append(nn.MaxPool2d(2))
            continue
        layers += [nn.Conv2d(before, width, 3, 1, 1), nn.BatchNorm2d(width), nn.ReLU()]
        before = width
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(512, 10))


def deep(*, width: int, layers: int) -> nn.Module:
    """Return a deep fully connected network without any norm."""
    made: list[nn.Module] = [nn.Flatten(), nn.Linear(196, width), nn.Tanh()]
    for _ in range(layers - 2):
        made += [nn.Linear(width, width), nn.Tanh()]
    return nn.Sequential(*made, nn.Linear(width, 10))
