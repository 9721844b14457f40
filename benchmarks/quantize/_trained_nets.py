"""The networks that are quantized: what they are trained on, and for how long.

Real data alone: scikit-learn's digits, MNIST's four files, small JPEGs in folders of classes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from steptime.levers import load
from steptime.testing.lever_session_double import PlainSession

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _small_tasks import Data, pictures, read_idx, resnet
from _tiny_nets import RowTransformer, autoencoder, ds_cnn, mobilenet, one_digit, resized


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A network with its data and its training.

    Attributes:
        build: makes the network.
        data: reads training and test rows; raises OSError where they are absent.
        epochs, batch, rate: of Adam, whose rate falls to 0 along a cosine.
        makes_again: it gives its input again; how far off it is says what it never saw.
    """

    build: Callable[[], nn.Module]
    data: Callable[[], Data]
    epochs: int
    batch: int = 32
    rate: float = 3e-3
    makes_again: bool = False


class RowReader(nn.Module):
    """An LSTM that reads a picture row by row; its last step decides."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.LSTM(28, 64, batch_first=True)
        self.last = nn.Linear(64, 10)

    def forward(self, x: Any) -> Any:
        return self.last(self.rows(x)[0][:, -1])


def digits_net() -> nn.Module:
    """Return a small convolutional network for pictures of 8 x 8."""
    return nn.Sequential(
        *(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(256, 10)),
    )


def mnist_net() -> nn.Module:
    """Return a convolutional network for pictures of 28 x 28."""
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(1568, 64), nn.ReLU(), nn.Linear(64, 10)),
    )


def separable_net() -> nn.Module:
    """Return a network for pictures of 28 x 28 whose convolutions are depthwise, then of 1 x 1."""
    layers: list[nn.Module] = [nn.Conv2d(1, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16)]
    for before, after, stride in ((16, 32, 2), (32, 32, 1), (32, 64, 2)):
        each = nn.Conv2d(before, before, 3, stride, 1, groups=before, bias=False)
        layers += [nn.ReLU(), each, nn.BatchNorm2d(before)]
        layers += [nn.ReLU(), nn.Conv2d(before, after, 1, bias=False), nn.BatchNorm2d(after)]
    return nn.Sequential(
        *(*layers, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
    )


def with_uneven_channels(model: nn.Module) -> nn.Module:
    """Let the channels before each convolution differ a hundredfold, which the next undoes."""
    chance = torch.Generator().manual_seed(0)
    layers = list(model)
    with torch.no_grad():
        for norm, _, after in zip(layers, layers[1:], layers[2:], strict=False):
            if isinstance(norm, nn.BatchNorm2d) and isinstance(after, nn.Conv2d):
                sizes = 10 ** (2 * torch.rand(norm.num_features, generator=chance) - 1)
                norm.weight *= sizes
                norm.bias *= sizes
                after.weight /= sizes.view((-1, 1) if after.groups > 1 else (1, -1))[
                    ..., None, None
                ]
    return model


def digits() -> Data:
    """Return scikit-learn's digits: 1,000 to train with, 797 to test."""
    from sklearn.datasets import load_digits

    found = load_digits()
    x = torch.from_numpy(found.images[:, None] / 16).float()
    y = torch.from_numpy(found.target).long()
    return x[:1000], y[:1000], x[1000:], y[1000:]


def mnist_rows(folder: Path, *, num_train: int) -> Data:
    """Return pictures (num, 28, 28) and labels, all 10,000 to test with."""
    found: list[Any] = []
    for part, num in (("train", num_train), ("t10k", 10_000)):
        images = read_idx(folder / f"{part}-images-idx3-ubyte.gz")[:num].float()
        found += [images.div(255).sub(0.13).div(0.31)]
        found += [read_idx(folder / f"{part}-labels-idx1-ubyte.gz")[:num].long()]
    return tuple(found)  # type: ignore[return-value]


def _as_pictures(data: Data) -> Data:
    return data[0][:, None], data[1], data[2][:, None], data[3]


def tasks(mnist: Path, cifar: Path) -> dict[str, Task]:
    """Return the tasks by name, which read from these folders."""
    return {
        "digits CNN": Task(build=digits_net, data=digits, epochs=30),
        "MNIST CNN": Task(
            build=mnist_net,
            data=lambda: _as_pictures(mnist_rows(mnist, num_train=10_000)),
            epochs=4,
            batch=64,
        ),
        "MNIST depthwise CNN": Task(
            build=separable_net,
            data=lambda: _as_pictures(mnist_rows(mnist, num_train=10_000)),
            epochs=4,
            batch=64,
        ),
        "MNIST rows LSTM": Task(
            build=RowReader, data=lambda: mnist_rows(mnist, num_train=10_000), epochs=8, batch=64
        ),
        "CIFAR ResNet-20": Task(
            build=lambda: resnet(width=16, blocks=3, channels=3),
            data=lambda: pictures(cifar, num_train=1000, num_test=200),
            epochs=15,
        ),
        "MLPerf Tiny ResNet-8": Task(
            build=lambda: resnet(width=16, blocks=1, channels=3),
            data=lambda: pictures(cifar, num_train=1000, num_test=200),
            epochs=15,
        ),
        "MLPerf Tiny DS-CNN": Task(
            build=ds_cnn,
            data=lambda: resized(mnist, shape=(1, 49, 10), num_train=6_000, num_test=2_000),
            epochs=4,
            batch=64,
        ),
        "MLPerf Tiny MobileNetV1": Task(
            build=mobilenet,
            data=lambda: resized(mnist, shape=(3, 96, 96), num_train=3_000, num_test=500),
            epochs=4,
        ),
        "MLPerf Tiny autoencoder": Task(
            build=autoencoder,
            data=lambda: one_digit(mnist),
            epochs=20,
            batch=64,
            makes_again=True,
        ),
        "MNIST rows transformer": Task(
            build=RowTransformer,
            data=lambda: mnist_rows(mnist, num_train=10_000),
            epochs=8,
            batch=64,
        ),
    }


def kept_file(folder: Path | None, name: str, seed: int) -> Path | None:
    """Return where the weights of a network are kept, if they are."""
    return None if folder is None else folder / f"{name.replace(' ', '_')}_{seed}.pt"


def trained(task: Task, data: Data, *, seed: int, kept: Path | None = None) -> nn.Module:
    """Return the network after its training, in evaluation mode; `kept` is the file of its weights.

    Training is left out where that file is there, so that several scripts can have one network.
    """
    torch.manual_seed(seed)
    model = task.build()
    if kept is None or not kept.exists():
        _fit(model, task, data, epochs=task.epochs, rate=task.rate)
        if kept is not None:
            torch.save(model.state_dict(), kept)
    else:
        model.load_state_dict(torch.load(kept, weights_only=True))
    return model.eval()


def trained_on(model: nn.Module, task: Task, data: Data, *, seed: int) -> nn.Module:
    """Return a trained network after a third as many epochs with the lever `quantization_aware`.

    Its rate begins at a tenth.
    """
    torch.manual_seed(seed)
    with PlainSession(torch) as session:
        undo = load("quantization_aware").apply({}, session)
        epochs = max(2, task.epochs // 3)
        _fit(model.train(), task, data, epochs=epochs, rate=task.rate / 10)
        assert session.counts["rounded_layer"]
        undo()
    return model


def _fit(model: nn.Module, task: Task, data: Data, *, epochs: int, rate: float) -> nn.Module:
    x, y, _, _ = data
    optimizer = torch.optim.Adam(model.parameters(), rate)
    loss = nn.functional.mse_loss if task.makes_again else nn.functional.cross_entropy
    num_steps = epochs * -(-len(x) // task.batch)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, num_steps)
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(task.batch):
            optimizer.zero_grad()
            loss(model(x[rows]), y[rows]).backward()
            optimizer.step()
            schedule.step()
