"""The four networks of MLPerf Tiny, after their published shapes, and a small transformer.

Their own data sets are not at hand, so each is trained on real pictures of its input's shape:
MNIST, resized, where the published network hears words, sees people or listens to machines.

Source: C. Banbury et al., MLPerf Tiny Benchmark (2021), https://github.com/mlcommons/tiny.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from _small_tasks import Data, read_idx
from torch import nn
from torch.nn.functional import interpolate


def _normed(layer: nn.Module, width: int) -> list[nn.Module]:
    return [layer, nn.BatchNorm2d(width), nn.ReLU()]


def _separable(before: int, after: int, stride: int = 1) -> list[nn.Module]:
    """Return a convolution of each channel alone, and one that mixes them."""
    alone = nn.Conv2d(before, before, 3, stride, 1, groups=before)
    return _normed(alone, before) + _normed(nn.Conv2d(before, after, 1), after)


def ds_cnn() -> nn.Module:
    """Return the network for 12 spoken words: 49 x 10, here with ten classes."""
    layers = [*_normed(nn.Conv2d(1, 64, (10, 4), 2, (5, 1)), 64), nn.Dropout(0.2)]
    for _ in range(4):
        layers += _separable(64, 64)
    mean = nn.AvgPool2d((25, 5))
    return nn.Sequential(*layers, nn.Dropout(0.4), mean, nn.Flatten(), nn.Linear(64, 10))


def mobilenet() -> nn.Module:
    """Return MobileNetV1 of a quarter of its width: 96 x 96 in colors, here with ten classes."""
    layers, before = _normed(nn.Conv2d(3, 8, 3, 2, 1), 8), 8
    wide = [(128, 2), *[(128, 1)] * 5, (256, 2), (256, 1)]
    for after, stride in [(16, 1), (32, 2), (32, 1), (64, 2), (64, 1), *wide]:
        layers += _separable(before, after, stride)
        before = after
    return nn.Sequential(*layers, nn.AvgPool2d(3), nn.Flatten(), nn.Linear(before, 10))


def autoencoder() -> nn.Module:
    """Return the deep autoencoder of 640 numbers, whose middle has 8."""
    layers, before = list[nn.Module](), 640
    for after in (128, 128, 128, 128, 8, 128, 128, 128, 128):
        layers += [nn.Linear(before, after), nn.BatchNorm1d(after), nn.ReLU()]
        before = after
    return nn.Sequential(*layers, nn.Linear(before, 640))


class RowTransformer(nn.Module):
    """Two layers of attention over the rows of a picture; their mean decides."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.places = nn.Linear(28, 32), nn.Parameter(0.02 * torch.randn(1, 28, 32))
        layer = nn.TransformerEncoderLayer(32, 4, 64, 0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.last = nn.Linear(32, 10)

    def forward(self, x: Any) -> Any:
        return self.last(self.layers(self.first(x) + self.places).mean(1))


def resized(folder: Path, *, shape: tuple[int, ...], num_train: int, num_test: int) -> Data:
    """Return MNIST in another shape (channels, height, width), and its labels."""
    found: list[Any] = []
    for part, num in (("train", num_train), ("t10k", num_test)):
        images = read_idx(folder / f"{part}-images-idx3-ubyte.gz")[:num, None].float()
        images = interpolate(images.div(255).sub(0.13).div(0.31), shape[1:], mode="bilinear")
        found += [images.repeat(1, shape[0], 1, 1)]
        found += [read_idx(folder / f"{part}-labels-idx1-ubyte.gz")[:num].long()]
    return tuple(found)  # type: ignore[return-value]


def one_digit(folder: Path, digit: int = 4) -> Data:
    """Return pictures of one digit (num, 640), which are to be made again, and 10,000 to test.

    The labels of these say which are of another digit: what the network never saw.
    """
    x, y, x_test, y_test = resized(folder, shape=(1, 20, 32), num_train=60_000, num_test=10_000)
    known = x[y == digit].flatten(1)
    return known, known, x_test.flatten(1), (y_test != digit).long()
