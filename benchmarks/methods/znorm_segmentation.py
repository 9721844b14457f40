"""Dice of a small residual U-Net on membranes, with gradient transforms and without.

    python benchmarks/methods/znorm_segmentation.py --data FOLDER [--seeds 4] [--steps 100]

FOLDER has `image/N.png` and `label/N.png`: thirty slices by an electron microscope with membranes
drawn in black (zhixuhao/unet on GitHub, `data/membrane/train`, MIT). Slices are averaged to 256 x
256; 18 train on random crops of 64 x 64, turned and mirrored, 4 choose the rate, 8 test whole. Each
method has the same four rates of Adam; the best by Dice of one seed on the choosing slices is then
trained from other seeds, as many as `--seeds`. Dice is of the membranes, over all pixels.
Results go to benchmarks/results/znorm_segmentation.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn

from steptime.methods import gradients as g

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import stamp

OUT = Path(__file__).resolve().parents[1] / "results" / "znorm_segmentation.json"
METHODS: dict[str, tuple[g.GradTransform, ...]] = {
    "none": (),
    "centralize": (g.Centralize(),),
    "znorm": (g.ZNorm(),),
}
RATES = (1e-3, 3e-3, 1e-2, 3e-2)
CHOOSING_SEEDS = (100,)
PARTS = {"train": range(18), "choose": range(18, 22), "test": range(22, 30)}
CROP, BATCH = 64, 4
Slices = dict[str, tuple[torch.Tensor, torch.Tensor]]


def read(folder: Path) -> Slices:
    """Return images and membranes (slices, 1, 256, 256) of each part."""
    found = {}
    for part, numbers in PARTS.items():
        both = [
            torch.stack([one_slice(folder / kind / f"{number}.png") for number in numbers])
            for kind in ("image", "label")
        ]
        images = nn.functional.avg_pool2d(both[0], 2)
        membranes = (nn.functional.avg_pool2d(both[1], 2) < 0.5).float()
        found[part] = ((images - 0.5) / 0.2, membranes)
    return found


def one_slice(path: Path) -> torch.Tensor:
    """Return a grey picture (1, height, width) between 0 and 1."""
    with Image.open(path) as picture:
        return torch.from_numpy(np.asarray(picture.convert("L"), dtype=np.float32) / 255)[None]


class Residual(nn.Module):
    """Two convolutions with batch norm around a skip connection."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.one, self.norm_one = nn.Conv2d(before, after, 3, 1, 1), nn.BatchNorm2d(after)
        self.two, self.norm_two = nn.Conv2d(after, after, 3, 1, 1), nn.BatchNorm2d(after)
        self.skip = nn.Conv2d(before, after, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return (rows, after, height, width)."""
        made = self.norm_two(self.two(self.norm_one(self.one(x)).relu()))
        return (made + self.skip(x)).relu()


class ResidualUNet(nn.Module):
    """Three scales of residual blocks, joined as in a U-Net (Zhang et al., 2018)."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.down = nn.ModuleList(
            [Residual(1, width), Residual(width, 2 * width), Residual(2 * width, 4 * width)]
        )
        self.up = nn.ModuleList([Residual(6 * width, 2 * width), Residual(3 * width, width)])
        self.head = nn.Conv2d(width, 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return scores of membrane (rows, 1, height, width)."""
        kept = []
        for number, block in enumerate(self.down):
            x = block(nn.functional.max_pool2d(x, 2) if number else x)
            kept.append(x)
        for block, wide in zip(self.up, (kept[1], kept[0]), strict=True):
            larger = nn.functional.interpolate(x, scale_factor=2.0, mode="nearest")
            x = block(torch.cat([larger, wide], 1))
        return self.head(x)


def crops(images: torch.Tensor, membranes: torch.Tensor, chance: Any) -> Any:
    """Return a batch of crops of images and membranes, turned and mirrored alike."""
    both = torch.cat([images, membranes], 1)
    rows, side = [], images.shape[-1] - CROP + 1
    draws = torch.randint(0, 2**31, (BATCH, 5), generator=chance)
    for number, down, right, turns, mirrored in draws.tolist():
        top, left = down % side, right % side
        row = both[number % len(both), :, top : top + CROP, left : left + CROP]
        row = torch.rot90(row, turns % 4, (1, 2))
        rows.append(row.flip(2) if mirrored % 2 else row)
    return torch.stack(rows).split(1, dim=1)


def dice(model: nn.Module, images: torch.Tensor, membranes: torch.Tensor) -> float:
    """Return the Dice coefficient of the membranes over all pixels."""
    model.eval()
    with torch.no_grad():
        found = torch.cat([model(one[None]) for one in images]) > 0
    both = (found & (membranes > 0)).sum()
    return (2 * both / (found.sum() + membranes.sum()).clamp(min=1)).item()


def train(slices: Slices, method: str, rate: float, *, seed: int, steps: int, on: str) -> float:
    """Return the Dice on a part, after so many steps of Adam."""
    torch.manual_seed(seed)
    model, chance = ResidualUNet(), torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    if METHODS[method]:
        g.attach(optimizer, *METHODS[method])
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps)
    for _ in range(steps):
        x, wanted = crops(*slices["train"], chance)
        optimizer.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(model(x), wanted).backward()
        optimizer.step()
        schedule.step()
    return dice(model, *slices[on])


def main() -> None:
    """Sweep, train, print and save."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--steps", type=int, default=100)
    args = parser.parse_args()
    torch.set_num_threads(1)
    slices, start_s, load = read(args.data), time.process_time(), os.getloadavg()[0]
    rows: dict[str, dict[str, Any]] = {}
    for method in METHODS:
        by_rate = {
            rate: mean(
                train(slices, method, rate, seed=seed, steps=args.steps, on="choose")
                for seed in CHOOSING_SEEDS
            )
            for rate in RATES
        }
        rows[method] = {"rate": max(by_rate, key=lambda rate: by_rate[rate]), "dice": []}
        rows[method]["chosen_by"] = {str(rate): round(one, 4) for rate, one in by_rate.items()}
        print(f"{method:<11} rates: {rows[method]['chosen_by']}", flush=True)
    for seed in range(args.seeds):  # seeds outside, so that a busy time meets all alike
        for method, row in rows.items():
            one = train(slices, method, row["rate"], seed=seed, steps=args.steps, on="test")
            row["dice"].append(round(one, 4))
            print(f"{method:<11} seed {seed}: {one:.4f}", flush=True)
    for method, row in rows.items():
        row["mean"], row["sd"] = round(mean(row["dice"]), 4), round(stdev(row["dice"]), 4)
        print(f"{method:<11} rate {row['rate']:g}: Dice {row['mean']:.4f} ± {row['sd']:.4f}")
    margin = rows["znorm"]["mean"] - rows["none"]["mean"]
    spread = rows["none"]["sd"]
    is_met = margin >= -spread
    print(
        f"znorm less untreated: {margin:+.4f}; bar: {-spread:+.4f}, {'' if is_met else 'NOT '}met"
    )
    document = {
        **stamp(),
        "command": "python benchmarks/methods/znorm_segmentation.py --data FOLDER"
        f" --seeds {args.seeds} --steps {args.steps}",
        "data": "30 slices of membranes, zhixuhao/unet at b45af4d, data/membrane/train (MIT)",
        "margin": round(margin, 4),
        "bar": -spread,
        "is_met": is_met,
        "methods": rows,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, 1 thread",
        "cpu_s": round(time.process_time() - start_s),
        "load_average": load,
        "torch": torch.__version__,
    }
    OUT.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
