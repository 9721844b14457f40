"""What the lever `prepared_data` saves of a data set that decodes JPEG files with Pillow.

    python benchmarks/data/data_prepared.py [--pictures 300] [--rounds 9] [--out FILE]

Pictures of 256 x 256 (quality 90, smooth with noise) lie in a folder; `steptime data convert
--decode` made its copy. An epoch opens each file in a drawn order as torchvision's ImageFolder
does (`open`, `Image.open`, `convert("RGB")`). Epochs with and without the lever are taken in turn,
in CPU time of one thread. Each epoch with it compares its first 16 pictures, then one in 64, which
is in its time; the pixels of all pictures are compared outside of the clock. Results go to
benchmarks/results/data_prepared.json.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import PIL
import simplejpeg
from PIL import Image

from steptime.app.data.data_convert import ConversionRequest, convert_data
from steptime.levers.pictures.prepared_data import LEVER

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import stamp

OUT = Path(__file__).resolve().parents[1] / "results" / "data_prepared.json"
SIDE, QUALITY = 256, 90


def main() -> None:
    """Measure, compare, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pictures", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "pics"
        paths = write_pictures(folder, options.pictures)
        request = ConversionRequest(
            source=str(folder), target=f"{folder}.prepared", decode=True, is_anyway=True
        )
        answer = convert_data(request)
        settings = {"folder": f"{folder}.prepared"}
        pairs, digests = [], set()
        epoch(paths, digests)  # the first epoch warms the caches
        for _ in range(options.rounds):
            without_s = epoch(paths, digests)
            undo = LEVER.apply(settings, SimpleNamespace(count=refuse))
            with_s = epoch(paths, digests)
            undo()
            pairs.append((without_s, with_s))
    ratios = [one / other for one, other in pairs]
    document = {
        "command": "python benchmarks/data/data_prepared.py",
        **stamp(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, CPU time of 1 thread",
        "versions": {"python": platform.python_version(), "pillow": PIL.__version__},
        "num_pictures": options.pictures,
        "size_factor": answer.prediction.target_bytes.estimate
        / (answer.prediction.source_bytes or 1),
        "without_us": statistics.median(one for one, _ in pairs) * 1e6,
        "with_us": statistics.median(other for _, other in pairs) * 1e6,
        "speedup": statistics.median(ratios),
        "speedup_low": min(ratios),
        "speedup_high": max(ratios),
        "num_rounds": len(ratios),
        "is_identical": len(digests) == 1,
    }
    options.out.write_text(json.dumps(document, indent=1) + "\n")
    print(json.dumps(document, indent=1))


def refuse(what: str) -> None:
    """End the benchmark where the lever is off."""
    raise RuntimeError(what)


def write_pictures(folder: Path, num: int) -> list[Path]:
    """Write pictures into two folders of classes."""
    draw = np.random.default_rng(0)
    rows, columns = np.mgrid[:SIDE, :SIDE]
    paths = []
    for index in range(num):
        planes = [(columns * index // 7 + rows * color) % 256 for color in (1, 2, 3)]
        pixels = np.stack(planes, -1) // 2 + draw.integers(0, 60, (SIDE, SIDE, 3))
        path = folder / "ab"[index % 2] / f"{index:05}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(simplejpeg.encode_jpeg(pixels.astype(np.uint8), quality=QUALITY))
        paths.append(path)
    return paths


def epoch(paths: list[Path], digests: set[str]) -> float:
    """Read all pictures in a drawn order; return the CPU time of one [s]."""
    order = random.Random(0).sample(paths, len(paths))
    taken_s, digest = 0.0, hashlib.sha256()
    for path in order:
        started = time.process_time()
        image = load(path)
        taken_s += time.process_time() - started
        digest.update(image.tobytes())
    digests.add(digest.hexdigest())
    return taken_s / len(paths)


def load(path: Path) -> Any:
    """Return a picture as torchvision's `pil_loader` does."""
    with open(path, "rb") as file:
        return Image.open(file).convert("RGB")


if __name__ == "__main__":
    main()
