"""Quality of gradient transforms, each with a sweep of the learning rate of its own.

    python benchmarks/znorm_quality.py --data FOLDER [--seeds 3] [--epochs 3] [--train 1000]

FOLDER holds the idx files of MNIST. Three questions, on networks that are small on purpose:

* `resnet` and `plain` (VGG's form, the declared counter-example), Adam: the best rate of five is
  chosen by the first seeds' mean test accuracy, and what is printed are the accuracies at that
  rate; the margin is ZNorm's best less the best of untreated, clipped and centralized. Steps to
  the final test accuracy of the untreated run (its best rate), checked at each epoch's quarters.
* `deep`, fully connected without any norm, SGD: over how many decades of the rate the accuracy is
  within two points of the best, with ZNorm and without.

The rate that is best by test accuracy of the same seeds flatters every method equally. Losses are
printed as plainly as wins. Results go to benchmarks/results/znorm_quality.json.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
from _small_tasks import Data, deep, mnist, plain, resnet
from torch import nn

from steptime.methods import gradients as g

OUT = Path(__file__).resolve().parent / "results" / "znorm_quality.json"
METHODS: dict[str, tuple[g.GradTransform, ...]] = {
    "none": (),
    "clip_norm": (g.ClipNorm(1.0),),
    "centralize": (g.Centralize(),),
    "unit_rms": (g.UnitRms(),),
    "damped_znorm": (g.DampedZNorm(),),
    "znorm": (g.ZNorm(),),
}
MODELS: dict[str, Callable[[], nn.Module]] = {
    "resnet": lambda: resnet(width=8, blocks=1),
    "plain": lambda: plain(width=8, blocks=1),
    "deep": lambda: deep(width=64, layers=12),
}
RATES = (1e-4, 1e-3, 3e-3, 1e-2, 3e-2)
WIDE = (1e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0)
WITHIN = 0.02
"""Points of accuracy of the best that count as as good."""


def train(
    data: Data, model: nn.Module, optimizer: Any, *, epochs: int, seed: int, batch: int = 50
) -> list[float]:
    """Return the test accuracy at each quarter of an epoch; 0.1, chance, where it diverged."""
    images, labels, held, right = data
    chance = torch.Generator().manual_seed(seed)
    steps = len(images) // batch
    found = []
    for _ in range(epochs):
        order = torch.randperm(len(images), generator=chance)
        for step in range(steps):
            some = order[step * batch : (step + 1) * batch]
            loss = nn.functional.cross_entropy(model(images[some]), labels[some])
            if not math.isfinite(loss.item()):
                return [*found, 0.1]
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if (step + 1) % max(1, steps // 4) == 0:
                model.eval()
                with torch.no_grad():
                    found.append((model(held).argmax(1) == right).float().mean().item())
                model.train()
    return found


def runs(
    data: Data, model: str, method: str, rate: float, *, seeds: int, epochs: int, sgd: bool
) -> list[list[float]]:
    """Return the curves of all seeds."""
    found = []
    for seed in range(seeds):
        torch.manual_seed(seed)
        network = MODELS[model]()
        if sgd:
            optimizer: Any = torch.optim.SGD(network.parameters(), lr=rate, momentum=0.9)
        else:
            optimizer = torch.optim.Adam(network.parameters(), lr=rate)
        if METHODS[method]:
            g.attach(optimizer, *METHODS[method])
        found.append(train(data, network, optimizer, epochs=epochs, seed=seed))
    return found


def best_of(by_rate: dict[float, list[list[float]]]) -> float:
    """Return the rate with the best mean final accuracy."""
    return max(by_rate, key=lambda rate: mean(curve[-1] for curve in by_rate[rate]))


def quarters_to(curves: Sequence[Sequence[float]], target: float) -> float | None:
    """Return the mean number of quarter epochs until a run reaches it; None if one never does."""
    firsts = [next((i + 1 for i, x in enumerate(c) if x >= target), None) for c in curves]
    known = [one for one in firsts if one is not None]
    return mean(known) if len(known) == len(firsts) else None


def compare(data: Data, model: str, *, seeds: int, epochs: int) -> dict[str, Any]:
    """Every method at its own best rate, Adam."""
    rows: dict[str, Any] = {}
    curves: dict[str, list[list[float]]] = {}
    for method in METHODS:
        by_rate = {
            rate: runs(data, model, method, rate, seeds=seeds, epochs=epochs, sgd=False)
            for rate in RATES
        }
        rate = best_of(by_rate)
        curves[method] = by_rate[rate]
        finals = [curve[-1] for curve in by_rate[rate]]
        rows[method] = {
            "best_rate": rate,
            "accuracy": round(mean(finals), 4),
            "sd": round(stdev(finals), 4) if seeds > 1 else None,
            "by_rate": {str(r): round(mean(c[-1] for c in by_rate[r]), 4) for r in RATES},
        }
        print(f"{model:<7} adam {method:<13} best rate {rate:g}: {rows[method]['accuracy']:.4f}"
              f" ± {rows[method]['sd']}", flush=True)  # fmt: skip
    target = rows["none"]["accuracy"]
    for method, row in rows.items():
        row["quarters_to_untreated"] = quarters_to(curves[method], target - 0.005)
    rival = max(rows[name]["accuracy"] for name in ("none", "clip_norm", "centralize"))
    margin = rows["znorm"]["accuracy"] - rival
    print(f"{model:<7} znorm less the best of untreated, clipped, centralized: {margin:+.4f}"
          f" (bar: -0.005)  {'met' if margin >= -0.005 else 'NOT met'}", flush=True)  # fmt: skip
    return {"model": model, "optimizer": "Adam", "methods": rows, "margin": round(margin, 4)}


def width(data: Data, *, seeds: int, epochs: int) -> dict[str, Any]:
    """The interval of rates that are as good as the best, SGD on a deep network without norm."""
    rows = {}
    for method in ("none", "clip_norm", "unit_rms", "damped_znorm", "znorm"):
        finals = {
            rate: mean(
                c[-1]
                for c in runs(data, "deep", method, rate, seeds=seeds, epochs=epochs, sgd=True)
            )
            for rate in WIDE
        }
        good = [rate for rate, one in finals.items() if one >= max(finals.values()) - WITHIN]
        decades = math.log10(max(good) / min(good))
        rows[method] = {
            "best": round(max(finals.values()), 4),
            "decades": round(decades, 2),
            "by_rate": {str(rate): round(one, 4) for rate, one in finals.items()},
        }
        print(f"deep    sgd  {method:<13} best {rows[method]['best']:.4f}, within 2 points over "
              f"{decades:.2f} decades", flush=True)  # fmt: skip
    return {"model": "deep", "optimizer": "SGD, momentum 0.9", "methods": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--train", type=int, default=1000)
    parser.add_argument("--test", type=int, default=1000)
    args = parser.parse_args()
    torch.set_num_threads(1)
    data = mnist(args.data, num_train=args.train, num_test=args.test)
    start_s = time.process_time()
    found: list[dict[str, Any]] = []
    parts = [lambda: width(data, seeds=args.seeds, epochs=args.epochs)]
    parts += [
        lambda one=one: compare(data, one, seeds=args.seeds, epochs=args.epochs)  # type: ignore[misc]
        for one in ("resnet", "plain")
    ]
    for number, part in enumerate(parts, start=1):  # each part is kept once it is there
        found.append(part())
        cpu_s = time.process_time() - start_s
        save(args, found, cpu_s=cpu_s, is_complete=number == len(parts))


def save(
    args: argparse.Namespace, found: list[dict[str, Any]], *, cpu_s: float, is_complete: bool
) -> None:
    document = {
        "date": time.strftime("%Y-%m-%d"),
        "command": "python benchmarks/znorm_quality.py --data FOLDER"
        f" --seeds {args.seeds} --epochs {args.epochs} --train {args.train} --test {args.test}",
        "size": f"MNIST at 14 x 14, first {args.train} training and {args.test} test images, "
        f"batch 50, {args.epochs} epochs, {args.seeds} seeds, {len(RATES)} rates a method",
        "not_run": "CIFAR-10, ResNet-20, VGG-11, 5 seeds and 15 epochs",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, 1 thread",
        "torch": torch.__version__,
        "cpu_s": round(cpu_s),
        "is_complete": is_complete,
        "found": found,
    }
    OUT.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
