"""Whether the lever `jpeg_decoder` gives Pillow's bits, and what it costs beside Pillow.

    python benchmarks/data_jpeg_decoder.py FOLDER... [--rounds 9]

All JPEG files under the folders are opened as torchvision does (`Image.open(file).convert("RGB")`),
by Pillow and with the lever, and compared: pixels, mode, size and metadata. Then each folder's
first 200 files are decoded in turns by the one and the other; the figure is the median over rounds
of the ratio of CPU times (below 1 is a gain), with quartiles. Reading, opening and converting are
in both. Results go to benchmarks/results/data_jpeg_decoder.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles
from types import SimpleNamespace
from typing import Any

import PIL
import simplejpeg
from PIL import Image

from steptime.levers import _jpeg, jpeg_decoder

OUT = Path(__file__).resolve().parent / "results" / "data_jpeg_decoder.json"
NUM_TIMED = 200
LINE = "{folder:<24} {num_files:>5} files  {num_differing} differ  {ratio:.3f} {quartiles}"


def main() -> None:
    _jpeg.NUM_FIRST, _jpeg.EVERY = 0, 1 << 62  # it compares no image itself: here we do
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    rows = [compare(folder, options.rounds) for folder in options.folders]
    for row in rows:
        print(LINE.format(**row))
    document = {
        "date": time.strftime("%Y-%m-%d"),
        "command": f"python benchmarks/data_jpeg_decoder.py FOLDER... --rounds {options.rounds}",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, 1 thread",
        "pillow": PIL.__version__,
        "simplejpeg": simplejpeg.__version__,
        "rows": rows,
    }
    OUT.write_text(json.dumps(document, indent=1) + "\n")


def compare(folder: Path, rounds: int) -> dict[str, Any]:
    """Return how many files differ, and the ratio of CPU times."""
    names = sorted(p for p in folder.rglob("*") if p.suffix.lower() in (".jpg", ".jpeg"))
    num_differing = 0
    for name in names:
        theirs = describe(name)
        with lever_on():
            num_differing += describe(name) != theirs
    timed, ratios, level = names[:NUM_TIMED], [], []
    for _ in range(rounds + 1):
        before = cpu_time(lambda: [decode(name) for name in timed])
        with lever_on():
            after = cpu_time(lambda: [decode(name) for name in timed])
        ratios.append(after / before)
        level.append(before / len(timed))
    low, _, high = quantiles(ratios[1:], n=4)
    return {
        "folder": folder.name,
        "num_files": len(names),
        "num_differing": num_differing,
        "n": rounds,
        "pillow_us": round(median(level[1:]) * 1e6, 1),
        "ratio": round(median(ratios[1:]), 3),
        "quartiles": [round(low, 3), round(high, 3)],
    }


@contextmanager
def lever_on() -> Iterator[None]:
    """Put the lever on."""
    undo = jpeg_decoder.apply({}, SimpleNamespace())
    try:
        yield
    finally:
        undo()


def decode(name: Path) -> Any:
    """Return an image as torchvision's loader gives it."""
    with name.open("rb") as file:
        return Image.open(file).convert("RGB")


def describe(name: Path) -> Any:
    """Return all that a script may see of an image."""
    with Image.open(name) as image:
        pixels = image.tobytes()
        return pixels, image.mode, image.size, image.info, dict(image.getexif())


def cpu_time(act: Callable[[], Any]) -> float:
    """Return the CPU time of a call [s]."""
    began = time.process_time()
    act()
    return time.process_time() - began


if __name__ == "__main__":
    main()
