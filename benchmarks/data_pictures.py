"""What decoding less, or once, gives folders of pictures: CPU time of a sample.

    python benchmarks/data_pictures.py PHOTOS [--rounds 5]

PHOTOS holds JPEG photos by class. `scaled_decoding` reads them as they are, where 64 pixels are
asked for, and the first 24 enlarged eight times on each side (Lanczos, quality 92), which stand for
a phone's: their size and their work are a phone's, their detail is not. `decoded_cache` reads the
first 60 as PNG files, and as JPEG files. Batches of 8, shuffled, one thread, without a model; with
and without the lever in turns. The gain is the median over rounds of the ratio of CPU times, with
quartiles; the cache was filled before. For `scaled_decoding`, what was resized is compared with the
same of whole images, in grey levels, beside what bicubic in place of bilinear resizing changes;
so are 60 photos as they are, decoded at one half, which is then 1, 2, 3 or 4 times the result.
Results go to benchmarks/results/data_pictures.json.
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
from steptime.levers._first_resize import find_first_resize

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "benchmarks" / "results" / "data_pictures.json"
NUM_LARGE, NUM_KEPT, BATCH = 24, 60, 8
SETTINGS = {"limit_bytes": 1 << 30, "is_on_disk": False, "gap": 2.0}
LINE = "{lever:<16} {case:<44} {bare_us:9.1f} us a sample  {gain:5.2f}x {quartiles}  {remark}"
GAP_LINE = (
    "decoded at one half, {gap} times the result: differs by {mean_difference} of 255, "
    "bicubic by {bicubic_difference}"
)

sys.path.insert(0, str(ROOT / "tests"))
from torchvision_here import load_torchvision  # noqa: E402

torchvision = load_torchvision()
T = torchvision.transforms
Mode = T.InterpolationMode
CASES = (
    ("scaled_decoding", "photos", "photos of 500 x 375, Resize(64)", (T.Resize, 64)),
    ("scaled_decoding", "large", "4000 x 3000, Resize(256)", (T.Resize, 256)),
    ("scaled_decoding", "large", "4000 x 3000, RandomResizedCrop(224)", (T.RandomResizedCrop, 224)),
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
    differences = [compare_gap(options.photos, gap) for gap in (1, 2, 3, 4)]
    for one in differences:
        print(GAP_LINE.format(**one), flush=True)
    document = {
        "date": time.strftime("%Y-%m-%d"),
        "command": f"python benchmarks/data_pictures.py PHOTOS --rounds {options.rounds}",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, 1 thread",
        "load": round(os.getloadavg()[1], 1),
        "torch": torch.__version__,
        "torchvision": torchvision.__version__,
        "pillow": PIL.__version__,
        "rows": rows,
        "differences": differences,
    }
    OUT.write_text(json.dumps(document, indent=1) + "\n")


def write_folders(photos: Path, folder: Path) -> dict[str, Path]:
    """Return the folders of pictures by name."""
    names = sorted(photos.glob("*/*.jpg"))
    usual = [name for name in names if sorted(size_of(name)) in ([333, 500], [375, 500])]
    for kind, num in (("jpeg", NUM_KEPT), ("png", NUM_KEPT), ("large", NUM_LARGE)):
        (folder / kind / "one").mkdir(parents=True)
        for name in usual[:num]:
            image = Image.open(name).convert("RGB")
            if kind == "large":
                large = image.resize((8 * image.width, 8 * image.height), Image.Resampling.LANCZOS)
                large.save(folder / kind / "one" / name.name, quality=92)
            elif kind == "png":
                image.save((folder / kind / "one" / name.name).with_suffix(".png"))
            else:
                (folder / kind / "one" / name.name).write_bytes(name.read_bytes())
    return {"photos": photos, **{kind: folder / kind for kind in ("jpeg", "png", "large")}}


def size_of(name: Path) -> tuple[int, int]:
    with Image.open(name) as image:
        return image.size


def folder_of(place: Path, first: Any, mode: Any = Mode.BILINEAR) -> Any:
    """Return a data set whose images all have one size."""
    make, size = first
    steps = [make(size, interpolation=mode), T.CenterCrop(size), T.ToTensor()]
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
    if name != "scaled_decoding":
        return found | {"remark": f"differs by {found['mean_difference']}"}
    if first[0] is T.RandomResizedCrop:
        near, far = same_crops(rows, first[1])
    else:
        _, other = epoch(folder_of(place, first, Mode.BICUBIC))
        near, far = difference(bare, changed), difference(bare, other)
    found |= {"mean_difference": round(near, 3), "bicubic_difference": round(far, 3)}
    remark = "differs by {mean_difference}, bicubic by {bicubic_difference} of 255"
    return found | {"remark": remark.format(**found)}


def same_crops(rows: Any, size: int) -> tuple[float, float]:
    """Return the mean differences of random crops: decoded smaller, and resized otherwise.

    The places are multiples of the factor, so that both images have them.
    """
    crop, gap = T.functional.resized_crop, SETTINGS["gap"]
    step, near, far = find_first_resize(rows), [], []
    for name, _ in rows.samples:
        whole, small = Image.open(name), Image.open(name)
        factor = step.factor(*whole.size, gap)  # type: ignore[union-attr]
        small.draft("RGB", (whole.width // factor, whole.height // factor))
        drawn = T.RandomResizedCrop.get_params(whole, (0.08, 1.0), (3 / 4, 4 / 3))
        box = [side // factor for side in drawn]
        big = [side * factor for side in box]
        expected = T.functional.to_tensor(crop(whole, *big, (size, size)))
        ours = crop(small, *box, (size, size))
        other = crop(whole, *big, (size, size), Mode.BICUBIC)
        near.append(difference([expected], [T.functional.to_tensor(ours)]))
        far.append(difference([expected], [T.functional.to_tensor(other)]))
    return mean(near), mean(far)


def compare_gap(photos: Path, gap: int) -> dict[str, Any]:
    """Return how photos differ that are resized from one half: means over them, in grey levels."""
    near, far = [], []
    for name in sorted(photos.glob("*/*.jpg"))[:NUM_KEPT]:
        whole, small = Image.open(name).convert("RGB"), Image.open(name)
        small.draft("RGB", (whole.width // 2, whole.height // 2))
        out = [side // (2 * gap) for side in (whole.width, whole.height)]
        expected = T.functional.to_tensor(whole.resize(out, Image.Resampling.BILINEAR))
        ours = small.resize(out, Image.Resampling.BILINEAR)
        other = whole.resize(out, Image.Resampling.BICUBIC)
        near.append(difference([expected], [T.functional.to_tensor(ours)]))
        far.append(difference([expected], [T.functional.to_tensor(other)]))
    return {
        "gap": gap,
        "num_images": len(near),
        "mean_difference": round(mean(near), 2),
        "bicubic_difference": round(mean(far), 2),
    }


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
