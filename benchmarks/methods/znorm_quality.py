"""Quality of gradient transforms, each with a sweep of the learning rate of its own.

    python benchmarks/methods/znorm_quality.py --data FOLDER [--seeds 5] [--epochs 15]
        [--train 10000] [--test 2000] [--methods none,clip_norm,centralize,znorm] [--models resnet]
        [--sweep-seeds 1] [--checks 4] [--jobs 2] [--device cuda] [--runs FILE.jsonl]
        [--minutes 60]

FOLDER holds the idx files of MNIST (averaged over 2 x 2 pixels, networks that are small on
purpose), or pictures of 32 x 32 in train/CLASS and test/CLASS (ResNet-20 of He et al. 2016 and
VGG-11, batches shifted and mirrored at random, the rate falling to zero by a cosine). Three
questions:

* `resnet` and `plain` (VGG's form, the declared counter-example), Adam: the best rate of five is
  chosen by the seeds' mean test accuracy, and what is printed are the accuracies at that
  rate; the margin is ZNorm's best less the best of untreated, clipped and centralized. Steps to
  the final test accuracy of the untreated run (its best rate), checked some times an epoch.
* `deep`, fully connected without any norm, SGD (MNIST alone): over how many decades of the rate
  the accuracy is within two points of the best, with ZNorm and without.

The rate that is best by test accuracy of the same seeds flatters every method equally; with
--sweep-seeds the rates are chosen by so many seeds, and the best trains with --seeds others. Losses
are printed as plainly as wins. Each run is kept in --runs as it ends, so that a long sweep goes on
where it was cut. Results go to benchmarks/results/znorm_quality.json, or znorm_pictures.json.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
from torch import nn

from steptime.methods import gradients as g

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import stamp
from _small_tasks import Data, deep, mnist, pictures, plain, resnet, vgg11

RESULTS = Path(__file__).resolve().parents[1] / "results"
METHODS: dict[str, tuple[g.GradTransform, ...]] = {
    "none": (),
    "clip_norm": (g.ClipNorm(1.0),),
    "centralize": (g.Centralize(),),
    "unit_rms": (g.UnitRms(),),
    "damped_znorm": (g.DampedZNorm(),),
    "znorm": (g.ZNorm(),),
}
MNIST: dict[str, Callable[[], nn.Module]] = {
    "resnet": lambda: resnet(width=8, blocks=1),
    "plain": lambda: plain(width=8, blocks=1),
    "deep": lambda: deep(width=64, layers=12),
}
PICTURES: dict[str, Callable[[], nn.Module]] = {
    "resnet": lambda: resnet(width=16, blocks=3, channels=3),
    "plain": vgg11,
}
RATES = (1e-4, 1e-3, 3e-3, 1e-2, 3e-2)
WIDE = (1e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0)
WITHIN = 0.02
"""Points of accuracy of the best that count as as good."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One training: what decides it."""

    model: str
    method: str
    rate: float
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What all trainings share."""

    folder: str
    num_train: int
    num_test: int
    epochs: int
    batch: int
    device: str
    checks: int = 4

    @property
    def has_pictures(self) -> bool:
        return (Path(self.folder) / "train").is_dir()

    @property
    def models(self) -> dict[str, Callable[[], nn.Module]]:
        return PICTURES if self.has_pictures else MNIST


Curves = dict[Run, list[float]]


@cache
def data_of(setting: Setting) -> Data:
    """Return images and labels of training and test; once a process."""
    read = pictures if setting.has_pictures else mnist
    found = read(Path(setting.folder), num_train=setting.num_train, num_test=setting.num_test)
    return tuple(part.to(setting.device) for part in found)


def varied(images: Any, chance: torch.Generator) -> Any:
    """Return a batch, mirrored or not, and shifted by up to 4 pixels: as one, which is cheap."""
    if torch.rand((), generator=chance) < 0.5:
        images = images.flip(3)
    x, y = torch.randint(0, 9, (2,), generator=chance).tolist()
    size = images.shape[-1]
    return nn.functional.pad(images, (4, 4, 4, 4))[:, :, y : y + size, x : x + size]


def train(setting: Setting, model: nn.Module, optimizer: Any, *, seed: int) -> list[float]:
    """Return the test accuracy some times an epoch; 0.1, chance, where it diverged."""
    images, labels, held, right = data_of(setting)
    chance = torch.Generator().manual_seed(seed)
    steps = len(images) // setting.batch
    plan = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps * setting.epochs)
    found: list[float] = []
    for _ in range(setting.epochs):
        order = torch.randperm(len(images), generator=chance)
        for step in range(steps):
            some = order[step * setting.batch : (step + 1) * setting.batch].to(images.device)
            batch = varied(images[some], chance) if setting.has_pictures else images[some]
            loss = nn.functional.cross_entropy(model(batch), labels[some])
            if not math.isfinite(loss.item()):
                return [*found, 0.1]
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if setting.has_pictures:
                plan.step()
            if (step + 1) % max(1, steps // setting.checks) == 0:
                found.append(accuracy(model, held, right))
    return found


def accuracy(model: nn.Module, images: Any, labels: Any) -> float:
    """Return the share that is right."""
    model.eval()
    with torch.no_grad():
        num = sum(
            int((model(some).argmax(1) == labels[at * 500 : at * 500 + 500]).sum())
            for at, some in enumerate(images.split(500))
        )
    model.train()
    return num / len(images)


def one_run(run: Run, setting: Setting) -> list[float]:
    """Return the accuracies of one training."""
    torch.set_num_threads(1)
    torch.manual_seed(run.seed)
    network = setting.models[run.model]().to(setting.device)
    if run.model == "deep":
        optimizer: Any = torch.optim.SGD(network.parameters(), lr=run.rate, momentum=0.9)
    else:
        optimizer = torch.optim.Adam(network.parameters(), lr=run.rate)
    if METHODS[run.method]:
        g.attach(optimizer, *METHODS[run.method])
    return train(setting, network, optimizer, seed=run.seed)


def all_runs(models: Sequence[str], methods: Sequence[str], seeds: int) -> Iterator[Run]:
    """All trainings, seed by seed, so that what a cut leaves is even."""
    for seed in range(seeds):
        for model in models:
            rates = WIDE if model == "deep" else RATES
            for rate in rates:
                for method in methods:
                    if model != "deep" or method != "centralize":
                        yield Run(model=model, method=method, rate=rate, seed=seed)


def last_runs(curves: Curves, wanted: Sequence[Run], seeds: int) -> list[Run]:
    """Return the best rate of each model and method of a sweep with other seeds."""
    first = 1 + max(run.seed for run in wanted)
    found = []
    for seed in range(first, first + seeds):
        for model, method in dict.fromkeys((run.model, run.method) for run in wanted):
            if model != "deep" and (by_rate := by_rate_of(curves, model, method)):
                rate = best_of(by_rate)
                found.append(Run(model=model, method=method, rate=rate, seed=seed))
    return found


def trained(wanted: Sequence[Run], setting: Setting, kept: Path | None, *, jobs: int,
            minutes: float) -> Curves:  # fmt: skip
    """Return the accuracies of those that are kept and those that there was time for."""
    curves = read_kept(kept, setting)
    missing = [run for run in wanted if run not in curves]
    start = time.monotonic()
    context = get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        while missing and time.monotonic() - start < 60 * minutes:
            now, missing = missing[:jobs], missing[jobs:]
            for run, curve in zip(
                now, pool.map(partial(one_run, setting=setting), now), strict=True
            ):
                curves[run] = curve
                keep(kept, setting, run, curve)
            took = time.monotonic() - start
            share = sum(run in curves for run in wanted)
            print(f"{share} of {len(wanted)} runs, {took / 60:.1f} minutes", flush=True)
    return curves


def read_kept(kept: Path | None, setting: Setting) -> Curves:
    """Return what earlier passes with the same setting left; a line that was cut is left out."""
    found: Curves = {}
    if kept is not None and kept.exists():
        for line in kept.read_text(encoding="utf-8").splitlines(keepends=True):
            if line.endswith("\n"):
                row = json.loads(line)
                if row["setting"] == {**asdict(setting), "folder": ""}:
                    found[Run(**row["run"])] = row["curve"]
    return found


def keep(kept: Path | None, setting: Setting, run: Run, curve: list[float]) -> None:
    """Add a line to what later passes begin with."""
    if kept is not None:
        row = {"setting": {**asdict(setting), "folder": ""}, "run": asdict(run), "curve": curve}
        with kept.open("a", encoding="utf-8") as out:
            out.write(json.dumps(row) + "\n")


def best_of(by_rate: dict[float, list[list[float]]]) -> float:
    """Return the rate with the best mean final accuracy."""
    return max(by_rate, key=lambda rate: mean(curve[-1] for curve in by_rate[rate]))


def checks_to(curves: Sequence[Sequence[float]], target: float) -> float | None:
    """Return the mean number of checks until a run reaches it; None if one never does."""
    firsts = [next((i + 1 for i, x in enumerate(c) if x >= target), None) for c in curves]
    known = [one for one in firsts if one is not None]
    return mean(known) if len(known) == len(firsts) else None


def by_rate_of(curves: Curves, model: str, method: str) -> dict[float, list[list[float]]]:
    """Return the curves of the seeds that every rate has."""
    mine = {
        run: curve for run, curve in curves.items() if (run.model, run.method) == (model, method)
    }
    rates = sorted({run.rate for run in mine})
    seeds = set.intersection(*({run.seed for run in mine if run.rate == rate} for rate in rates))
    return {rate: [mine[run] for run in sorted(mine, key=lambda run: run.seed)
                   if run.rate == rate and run.seed in seeds] for rate in rates}  # fmt: skip


def compare(
    curves: Curves, model: str, methods: Sequence[str], last: Curves | None
) -> dict[str, Any]:
    """Every method at its own best rate, Adam; where there are `last` runs, by those alone."""
    rows: dict[str, Any] = {}
    best: dict[str, list[list[float]]] = {}
    for method in methods:
        by_rate = by_rate_of(curves, model, method)
        rate = best_of(by_rate)
        best[method] = by_rate[rate]
        if last is not None:
            best[method] = by_rate_of(last, model, method)[rate]
        finals = [curve[-1] for curve in best[method]]
        rows[method] = {
            "best_rate": rate,
            "accuracy": round(mean(finals), 4),
            "sd": round(stdev(finals), 4) if len(finals) > 1 else None,
            "num_seeds": len(finals),
            "by_rate": {str(r): round(mean(c[-1] for c in by_rate[r]), 4) for r in by_rate},
        }
        print(f"{model:<7} adam {method:<13} best rate {rate:g}: {rows[method]['accuracy']:.4f}"
              f" ± {rows[method]['sd']} (n {len(finals)})", flush=True)  # fmt: skip
    target = rows["none"]["accuracy"]
    for method, row in rows.items():
        row["checks_to_untreated"] = checks_to(best[method], target - 0.005)
    rivals = [name for name in ("none", "clip_norm", "centralize") if name in rows]
    rival = max(rows[name]["accuracy"] for name in rivals)
    margin = rows["znorm"]["accuracy"] - rival
    print(f"{model:<7} znorm less the best of {', '.join(rivals)}: {margin:+.4f}"
          f" (bar: -0.005)  {'met' if margin >= -0.005 else 'NOT met'}", flush=True)  # fmt: skip
    return {"model": model, "optimizer": "Adam", "methods": rows, "margin": round(margin, 4)}


def width(curves: Curves, methods: Sequence[str]) -> dict[str, Any]:
    """The interval of rates that are as good as the best, SGD on a deep network without norm."""
    rows = {}
    for method in methods:
        if method == "centralize":
            continue
        by_rate = by_rate_of(curves, "deep", method)
        finals = {rate: mean(curve[-1] for curve in found) for rate, found in by_rate.items()}
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
    parser.add_argument("--batch", type=int, default=50)
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--models")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--sweep-seeds", type=int, help="seeds that choose the rates")
    parser.add_argument("--checks", type=int, default=4, help="of the accuracy, an epoch")
    parser.add_argument("--runs", type=Path, help="where runs are kept, to go on with them")
    parser.add_argument("--minutes", type=float, default=math.inf)
    args = parser.parse_args()
    setting = Setting(
        folder=str(args.data),
        num_train=args.train,
        num_test=args.test,
        epochs=args.epochs,
        batch=args.batch,
        device=args.device,
        checks=args.checks,
    )
    models = args.models.split(",") if args.models else list(setting.models)
    methods = args.methods.split(",")
    wanted = list(all_runs(models, methods, args.sweep_seeds or args.seeds))
    start_s = time.monotonic()
    curves = trained(wanted, setting, args.runs, jobs=args.jobs, minutes=args.minutes)
    last: Curves | None = None
    if args.sweep_seeds:
        others = last_runs(curves, wanted, args.seeds)
        left = args.minutes - (time.monotonic() - start_s) / 60
        known = trained(others, setting, args.runs, jobs=args.jobs, minutes=left)
        last = {run: known[run] for run in others if run in known}
        wanted += others
        curves |= last
    found = []
    for model in models:
        if any(run.model == model for run in curves):
            is_deep = model == "deep"
            row = width(curves, methods) if is_deep else compare(curves, model, methods, last)
            found.append(row)
    save(setting, args.sweep_seeds, args.seeds, found, wall_s=time.monotonic() - start_s,
         is_complete=all(run in curves for run in wanted))  # fmt: skip


def save(setting: Setting, sweep_seeds: int | None, seeds: int, found: list[dict[str, Any]], *,
         wall_s: float, is_complete: bool) -> None:  # fmt: skip
    kind = "pictures" if setting.has_pictures else "quality"
    kept = {name: value for name, value in asdict(setting).items() if name != "folder"}
    document = {
        **stamp(),
        "command": "python benchmarks/methods/znorm_quality.py --data FOLDER"
        f" --seeds {seeds} --epochs {setting.epochs} --train {setting.num_train}"
        f" --test {setting.num_test} --batch {setting.batch} --checks {setting.checks}"
        + (f" --sweep-seeds {sweep_seeds}" if sweep_seeds else ""),
        "setting": {
            **kept,
            "seeds": seeds,
            "sweep_seeds": sweep_seeds,
            "pictures": setting.has_pictures,
        },
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, 1 thread a run",
        "torch": torch.__version__,
        "wall_s_of_last_pass": round(wall_s),
        "is_complete": is_complete,
        "found": found,
    }
    out = RESULTS / f"znorm_{kind}.json"
    out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
