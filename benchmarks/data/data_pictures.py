"""What decoding once gives folders of pictures: CPU time of a sample.

    python benchmarks/data/data_pictures.py PHOTOS [--rounds 5]

PHOTOS holds JPEG photos by class. `decoded_cache` reads the first 60 as PNG files, and as JPEG
files. Batches of 8, shuffled, one thread, without a model; with and without the lever in turns. The
gain is the median over rounds of the ratio of CPU times, with quartiles; the cache was filled
before. Results go to benchmarks/results/data_pictures.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean, median, quantiles
from types import SimpleNamespace
from typing import Any

import PIL
import torch
from PIL import Image

from steptime.levers import load

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import stamp

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "benchmarks" / "results" / "data_pictures.json"
NUM_KEPT, BATCH = 60, 8
SETTINGS = {"limit_bytes": 1 << 30, "is_on_disk": False}
LINE = "{lever:<16} {case:<44} {bare_us:9.1f} us a sample  {gain:5.2f}x {quartiles}  {remark}"

sys.path.insert(0, str(ROOT / "tests"))
from torchvision_here import load_torchvision  # noqa: E402

torchvision = load_torchvision()
T = torchvision.transforms
CASES = (
    (
        "decoded_cache",
        "jpeg",
        "JPEG of 500 x 375, RandomResizedCrop(224)",
        (T.RandomResizedCrop, 224),
    ),
    (
        "decoded_cache",
        "png",
        "PNG of 500 x 375, RandomResizedCrop(224)",
        (T.RandomResizedCrop, 224),
    ),
)
"""Lever, folder, words, and the first transform."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("photos", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        places = write_folders(options.photos, Path(folder))
        rows = []
        for lever, place, case, first in CASES:
            rows.append(compare(lever, case, places[place], first, options.rounds))
            print(LINE.format(**rows[-1]), flush=True)
    document = {
        **stamp(),
        "command": f"python benchmarks/data/data_pictures.py PHOTOS --rounds {options.rounds}",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, 1 thread",
        "load": round(os.getloadavg()[1], 1),
        "torch": torch.__version__,
        "torchvision": torchvision.__version__,
        "pillow": PIL.__version__,
        "rows": rows,
    }
    OUT.write_text(json.dumps(document, indent=1) + "\n")


def write_folders(photos: Path, folder: Path) -> dict[str, Path]:
    """Return the folders of pictures by name."""
    names = sorted(photos.glob("*/*.jpg"))
    usual = [name for name in names if sorted(size_of(name)) in ([333, 500], [375, 500])]
    for kind in ("jpeg", "png"):
        (folder / kind / "one").mkdir(parents=True)
        for name in usual[:NUM_KEPT]:
            image = Image.open(name).convert("RGB")
            if kind == "png":
                image.save((folder / kind / "one" / name.name).with_suffix(".png"))
            else:
                (folder / kind / "one" / name.name).write_bytes(name.read_bytes())
    return {kind: folder / kind for kind in ("jpeg", "png")}


def size_of(name: Path) -> tuple[int, int]:
    with Image.open(name) as image:
        return image.size


def folder_of(place: Path, first: Any) -> Any:
    """Return a data set whose images all have one size."""
    make, size = first
    steps = [make(size), T.CenterCrop(size), T.ToTensor()]
    return torchvision.datasets.ImageFolder(place, T.Compose(steps))


def compare(name: str, case: str, place: Path, first: Any, rounds: int) -> dict[str, Any]:
    """Return the gain of a lever, and how its images differ."""
    lever, rows, ratios, level = load(name), folder_of(place, first), [], []
    for _ in range(rounds):
        bare_s, bare = epoch(rows)
        undo: Callable[[], None] = lever.apply(SETTINGS, SimpleNamespace(torch=torch))  # type: ignore[misc, arg-type, assignment]
        changed_s, changed = epoch(rows)
        undo()
        ratios.append(bare_s / changed_s)
        level.append(bare_s)
    low, _, high = quantiles(ratios, n=4)
    found = {
        "lever": name,
        "case": case,
        "num_images": len(rows),
        "n": rounds,
        "bare_us": round(median(level) * 1e6, 1),
        "gain": round(median(ratios), 3),
        "quartiles": [round(low, 3), round(high, 3)],
        "mean_difference": round(difference(bare, changed), 3),
    }
    return found | {"remark": f"differs by {found['mean_difference']}"}


def difference(ours: Sequence[Any], theirs: Sequence[Any]) -> float:
    """Return the mean difference of pixels [grey levels of 255]."""
    pairs = zip(ours, theirs, strict=True)
    return mean(float((a - b).abs().mean()) * 255 for a, b in pairs)


def epoch(rows: Any) -> tuple[float, list[Any]]:
    """Return the CPU time of a sample [s] and the batches of images."""
    torch.manual_seed(0)
    random.seed(0)
    batches = iter(torch.utils.data.DataLoader(rows, BATCH, shuffle=True))
    began, found = time.process_time(), [images for images, _ in batches]
    return (time.process_time() - began) / len(rows), found


if __name__ == "__main__":
    main()
