"""What the Q-Newton benchmarks share: digits, networks, matrices, words on the machine."""

from __future__ import annotations

import gzip
import itertools
import math
import os
import platform
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import cpu_name, stamp

RESULTS = Path(__file__).resolve().parents[1] / "results"


def read_idx(path: Path, offset: int) -> torch.Tensor:
    return torch.frombuffer(bytearray(gzip.open(path).read()[offset:]), dtype=torch.uint8)


def digits(folder: Path, num: int = 10_000) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """The first `num` training digits and all test digits of MNIST, pooled to 8x8, standardized."""
    found = {}
    for name, file in (("train", "train"), ("test", "t10k")):
        images = read_idx(folder / f"{file}-images-idx3-ubyte.gz", 16).view(-1, 1, 28, 28)
        labels = read_idx(folder / f"{file}-labels-idx1-ubyte.gz", 8)
        pooled = functional.adaptive_avg_pool2d(images[:num].float() / 255, 8).flatten(1)
        found[name] = (pooled, labels[:num].long())
    mean, deviation = found["train"][0].mean(0), found["train"][0].std(0) + 1e-2
    return {name: ((x - mean) / deviation, y) for name, (x, y) in found.items()}


def network(widths: tuple[int, ...], seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    for inner, outer in itertools.pairwise(widths):
        layers += [nn.Linear(inner, outer), nn.Tanh()]
    return nn.Sequential(*layers[:-1])


def batch_of(data: tuple[torch.Tensor, torch.Tensor], size: int, number: int) -> Any:
    chance = torch.Generator().manual_seed(number)
    chosen = torch.randperm(len(data[0]), generator=chance)[:size]
    return data[0][chosen], data[1][chosen]


def matrix_of(num: int, kappa: float, seed: int, dtype: torch.dtype) -> torch.Tensor:
    """Symmetric positive definite, eigenvalues from 1 to 1/kappa on a logarithmic scale."""
    chance = torch.Generator().manual_seed(seed)
    basis, _ = torch.linalg.qr(torch.randn(num, num, generator=chance, dtype=torch.float64))
    values = torch.logspace(0, -math.log10(kappa), num, dtype=torch.float64)
    matrix = basis @ torch.diag(values) @ basis.T
    return ((matrix + matrix.T) / 2).to(dtype)


def machine() -> dict[str, Any]:
    """Hardware, versions, and how busy it was."""
    return {
        "cpu": cpu_name(),
        "num_cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load_1_minute": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "torch": torch.__version__,
        **stamp(),
    }
