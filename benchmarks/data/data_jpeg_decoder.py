"""Whether the lever `jpeg_decoder` gives Pillow's bits, and what it costs beside Pillow.

    python benchmarks/data/data_jpeg_decoder.py FOLDER... [--rounds 9]

All JPEG files under the folders are opened as torchvision does (`Image.open(file).convert("RGB")`),
by Pillow and with the lever, and compared: pixels, mode, size and metadata, of the opened image
and of the copy that `convert` makes. Then each folder's first 200 files are decoded in turns by two
processes, one with the lever; each image is let go before the next, as a sample's is. The figure is
the median over rounds of the ratio of CPU times (below 1 is a gain), with quartiles. Reading,
opening and converting are in both. Results go to benchmarks/results/data_jpeg_decoder.json.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from statistics import median, quantiles
from types import SimpleNamespace
from typing import Any

import PIL
import simplejpeg
from PIL import Image

from steptime.levers.pictures import jpeg, jpeg_decoder

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import stamp

OUT = Path(__file__).resolve().parents[1] / "results" / "data_jpeg_decoder.json"
NUM_TIMED = 200
LINE = "{folder:<24} {num_files:>5} files  {num_differing} differ  {ratio:.3f} {quartiles}"


def main() -> None:
    jpeg.NUM_FIRST, jpeg.EVERY = 0, 1 << 62  # it compares no image itself: here we do
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    rows = [compare(folder, options.rounds) for folder in options.folders]
    for row in rows:
        print(LINE.format(**row))
    document = {
        **stamp(),
        "command": "python benchmarks/data/data_jpeg_decoder.py FOLDER..."
        f" --rounds {options.rounds}",
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
    timed = names[:NUM_TIMED]
    with timing_process(timed, has_lever=False) as theirs, timing_process(timed) as ours:
        times = [(theirs(), ours()) for _ in range(rounds + 1)]
    level = [before / len(timed) for before, _ in times]
    ratios = [after / before for before, after in times]
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


@contextmanager
def timing_process(names: list[Path], *, has_lever: bool = True) -> Iterator[Callable[[], float]]:
    """Give a function that lets another process decode the files, and returns its CPU time [s]."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(
        target=time_on_request,
        args=(theirs, names),
        kwargs={"has_lever": has_lever},
        daemon=True,
    )
    process.start()

    def once() -> float:
        ours.send(True)
        return float(ours.recv())

    yield once
    ours.send(False)
    process.join()


def time_on_request(pipe: Any, names: list[Path], *, has_lever: bool) -> None:
    """Answer each request with the CPU time of decoding all files [s]."""
    with lever_on() if has_lever else nullcontext():
        while pipe.recv():
            began = time.process_time()
            for name in names:
                decode(name)
            pipe.send(time.process_time() - began)


def decode(name: Path) -> Any:
    """Return an image as torchvision's loader gives it."""
    with name.open("rb") as file:
        return Image.open(file).convert("RGB")


def describe(name: Path) -> Any:
    """Return all that a script may see of an image."""
    with Image.open(name) as image:
        pixels = image.tobytes()
        seen = pixels, image.mode, image.size, image.info, dict(image.getexif())
    copy = decode(name)
    return *seen, copy.tobytes(), copy.mode, copy.size, copy.info


if __name__ == "__main__":
    main()
