"""What the levers of the loader give data sets of torchvision: CPU time of a sample.

    python benchmarks/data/data_levers.py MNIST_FOLDER --photos FOLDER [--rounds 7] [--only LEVER]

MNIST_FOLDER holds `MNIST/raw/train-images-idx3-ubyte` and its labels, as torchvision keeps them;
pictures of random bytes stand for CIFAR and larger images, and FOLDER holds JPEG files by class
(`ImageFolder`, cropped to 224 and flipped at random, in batches of 16); windows are 336 and 144
rows of a table of 7 columns and of one of 4, as scripts for time series make them. Batches of 64
are read without a model, shuffled, on one thread; the first three of each epoch are left out, as
the levers compare them and `tune` measures behind them. With and without the lever in turns; the
gain is the median over rounds of the ratio of CPU times, with quartiles; batches and random states
are compared bit for bit. Results go to benchmarks/results/data_levers.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median, quantiles
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from steptime.levers import load
from steptime.levers.input.datasets import content_of

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import stamp

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "benchmarks" / "results" / "data_levers.json"
NUM_WARM = 3
NUM_BATCHES = 50
PHOTOS = "photos"
SETTINGS = {"decoded_cache": {"limit_bytes": 1 << 30, "is_on_disk": False}}
LINE = "{case:<22} {lever:<18} {bare_us:8.1f} us a sample  {gain:5.2f}x {quartiles}"

sys.path.insert(0, str(ROOT / "tests"))
from torchvision_here import load_torchvision  # noqa: E402

torchvision = load_torchvision()
T = torchvision.transforms
MEAN, STD = (0.49, 0.48, 0.45), (0.25, 0.24, 0.26)


def make_cases(folder: Path, photos: Path) -> dict[str, Callable[[], Any]]:
    """Return by name what makes a data set."""
    end = (T.ToTensor(), T.Normalize(MEAN, STD))
    jitter = (T.RandomCrop(32, padding=4), T.RandomHorizontalFlip())
    cropped = T.Compose([T.RandomResizedCrop(224), jitter[1], *end])
    digits = T.Compose([T.ToTensor(), T.Normalize((0.1307,), (0.3081,))])
    return {
        "MNIST": lambda: torchvision.datasets.MNIST(folder, transform=digits),
        PHOTOS: lambda: torchvision.datasets.ImageFolder(photos, cropped),
        "32 x 32": lambda: pictures(32, T.Compose(end)),
        "32 x 32, random": lambda: pictures(32, T.Compose([*jitter, *end])),
        "96 x 96, flipped": lambda: pictures(96, T.Compose([jitter[1], *end])),
        "224 x 224, flipped": lambda: pictures(224, T.Compose([jitter[1], *end])),
        "windows": Windows,
    }


class Windows(torch.utils.data.Dataset):  # type: ignore[misc]
    """Windows of a series with its time stamps, float64, as a class of the user's."""

    def __init__(self) -> None:
        self.data = np.random.default_rng(0).normal(size=(8640, 7))
        self.stamps = np.random.default_rng(1).normal(size=(8640, 4))

    def __len__(self) -> int:
        return 8640 - 336 - 96 + 1

    def __getitem__(self, index: int) -> Any:
        end = index + 336
        part = slice(end - 48, end + 96)
        return self.data[index:end], self.data[part], self.stamps[index:end], self.stamps[part]


def pictures(size: int, transform: Any) -> Any:
    """Return CIFAR with other pictures."""
    rows = object.__new__(torchvision.datasets.CIFAR10)
    generator = np.random.default_rng(0)
    num = 64 * (NUM_WARM + NUM_BATCHES) if size < 224 else 64 * 8
    rows.data = generator.integers(0, 256, (num, size, size, 3), dtype=np.uint8)
    rows.targets = generator.integers(0, 10, num).tolist()
    rows.transform, rows.target_transform = transform, None
    return rows


TRIED: dict[str, tuple[str, ...]] = {
    "decoded_cache": (PHOTOS,),
    "jpeg_decoder": (PHOTOS,),
    "whole_batch_fetch": ("MNIST", "32 x 32", "windows"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--photos", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", nargs="+", choices=TRIED, default=tuple(TRIED))
    options = parser.parse_args()
    torch.set_num_threads(1)
    cases, rows = make_cases(options.folder, options.photos), []
    if len(options.only) < len(TRIED):  # the others' rows stay
        before = json.loads(OUT.read_text())["rows"]
        rows = [row for row in before if row["lever"] not in options.only]
    for lever, names in TRIED.items():
        for name in names if lever in options.only else ():
            rows.append(compare(lever, name, cases[name], options.rounds))
            print(LINE.format(**rows[-1]), flush=True)
    document = {
        **stamp(),
        "command": "python benchmarks/data/data_levers.py MNIST_FOLDER --photos FOLDER "
        f"--rounds {options.rounds}",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, 1 thread",
        "torch": torch.__version__,
        "torchvision": torchvision.__version__,
        "rows": rows,
    }
    OUT.write_text(json.dumps(document, indent=1) + "\n")


def compare(name: str, case: str, make: Callable[[], Any], rounds: int) -> dict[str, Any]:
    """Return the gain of a lever, and whether all bits were equal."""
    lever, rows, ratios, level = load(name), make(), [], []
    size, is_equal = 16 if case == PHOTOS else 64, True
    for _ in range(rounds):
        bare_s, bare = epoch(rows, size)
        undo = lever.apply(SETTINGS.get(name, {}), SimpleNamespace(torch=torch))  # type: ignore[misc, arg-type]
        changed_s, changed = epoch(rows, size)
        undo()  # type: ignore[misc]
        is_equal &= bare == changed
        ratios.append(bare_s / changed_s)
        level.append(bare_s)
    low, _, high = quantiles(ratios, n=4)
    return {
        "lever": name,
        "case": case,
        "n": rounds,
        "is_equal": is_equal,
        "bare_us": round(median(level) * 1e6, 2),
        "gain": round(median(ratios), 3),
        "quartiles": [round(low, 3), round(high, 3)],
    }


def epoch(rows: Any, size: int) -> tuple[float, Any]:
    """Return the CPU time of a sample [s], and what came: some batches and the random states."""
    torch.manual_seed(0)
    random.seed(0)
    batches = iter(torch.utils.data.DataLoader(rows, size, shuffle=True))
    found = [content_of(next(batches)) for _ in range(NUM_WARM)]
    spent_s, num = 0.0, 0
    for _ in range(NUM_BATCHES):
        began = time.process_time()
        batch = next(batches, None)
        if batch is None:
            break
        spent_s += time.process_time() - began
        num += len(batch[0])
        found = [*found[-2 * NUM_WARM :], hash(str(content_of(batch)))]
    return spent_s / num, [*found, torch.rand(1).item(), random.random()]


if __name__ == "__main__":
    main()
