"""How often a lasting change of the step time is seen where there is none, and where there is one.

    python benchmarks/run/shifts.py [--series 1000] [--run FOLDER ...]

Scripted step times: without dependence but with far outliers, with much dependence, with short
spells of somebody else's work, with steps of several kinds. With `--run`, the steps of real runs
too: cut into pieces of two seconds, or a twentieth of the series where that is shorter, and put
together anew at random, so that their noise stays and their own changes do not. A row is a noise
and a length; its first number is the share of series with a change where none was planted
(promised: at most 1 in 100), the others the share in which a change planted in the middle, or at
a quarter, is found within 5 % of its place. Results go to benchmarks/results/shifts.json.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from steptime.diagnose.shifts.change_points import find_changes
from steptime.measure.fold.rank_fold import select_ranks
from steptime.measure.fold.run_records import read_records
from steptime.measure.steps.steady_window import series_of

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import stamp

OUT = Path(__file__).resolve().parents[1] / "results" / "shifts.json"
LENGTHS = (40, 200, 2000)
RATIOS = (1.2, 1.5, 2.0)
PIECE_S = 2.0

Noise = Callable[[int, random.Random], list[float]]


def heavy_tailed(n: int, chance: random.Random) -> list[float]:
    """No dependence; one step in thirty takes up to ten times as long."""
    far = lambda: chance.uniform(2, 10) if chance.random() < 1 / 30 else 1.0  # noqa: E731
    return [0.1 * math.exp(chance.gauss(0, 0.05)) * far() for _ in range(n)]


def dependent(r: float) -> Noise:
    def make(n: int, chance: random.Random) -> list[float]:
        last, found = chance.gauss(0, 0.15), []
        for _ in range(n):
            last = r * last + math.sqrt(1 - r * r) * chance.gauss(0, 0.15)
            found.append(0.1 * math.exp(last))
        return found

    return make


def spells(n: int, chance: random.Random) -> list[float]:
    """Somebody else's work comes and goes: steps are 1.6 times as long for some of them."""
    found: list[float] = []
    is_busy = False
    while len(found) < n:
        factor = 1.6 if is_busy else 1.0
        length = 1 + int(chance.expovariate(1 / max(3, n / (60 if is_busy else 25))))
        found += [0.1 * factor * math.exp(chance.gauss(0, 0.05)) for _ in range(length)]
        is_busy = not is_busy
    return found[:n]


def several_kinds(n: int, chance: random.Random) -> list[float]:
    """Each fourth step takes three times as long, in a period or at random."""
    long = (lambda i: i % 4 == 0) if chance.random() < 0.5 else (lambda _: chance.random() < 0.25)
    return [0.1 * (3 if long(i) else 1) * math.exp(chance.gauss(0, 0.05)) for i in range(n)]


def real(folder: Path) -> Noise:
    """The steps of a run after warmup, in pieces put together at random."""
    (rank, *_) = select_ranks(read_records(folder))
    series = series_of(rank)
    first = max([*series.restarts, 0]) + 20
    kept = [t for i, t in enumerate(series.times_s) if i >= first and i not in series.disturbed]
    longest = max(1, round(PIECE_S * len(kept) / math.fsum(kept)))

    def make(n: int, chance: random.Random) -> list[float]:
        size = max(1, min(longest, n // 20))
        found: list[float] = []
        while len(found) < n:
            start = chance.randrange(max(1, len(kept) - size))
            found += kept[start : start + size]
        return found[:n]

    return make


NOISES: dict[str, Noise] = {
    "far outliers": heavy_tailed,
    "dependence 0.5": dependent(0.5),
    "dependence 0.9": dependent(0.9),
    "spells": spells,
    "several kinds": several_kinds,
}


def one_row(name: str, noise: Noise, length: int, num_series: int) -> dict[str, Any]:
    """Series of one noise and one length, without a change and with planted ones."""
    chance = random.Random(f"{name} {length}")
    drawn = [noise(length, chance) for _ in range(num_series)]
    false = sum(bool(find_changes(values)) for values in drawn)
    found: dict[str, float] = {}
    for ratio in RATIOS:
        for part in (0.5, 0.25):
            at, few = int(part * length), drawn[: max(1, num_series // 5)]
            hits = sum(is_found(plant(values, at, ratio), at) for values in few)
            found[f"{ratio} at {part}"] = hits / len(few)
    return {
        "noise": name,
        "steps": length,
        "n": num_series,
        "false_alarms": false / num_series,
        "found": found,
    }


def plant(values: list[float], at: int, ratio: float) -> list[float]:
    return [value * (ratio if i >= at else 1.0) for i, value in enumerate(values)]


def is_found(values: list[float], at: int) -> bool:
    changes = find_changes(values)
    return len(changes) == 1 and abs(changes[0].index - at) <= max(2, 0.05 * len(values))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--series", type=int, default=1000, help="a row")
    parser.add_argument("--run", type=Path, nargs="*", default=[], help="folders of real runs")
    options = parser.parse_args()
    noises = NOISES | {f"real run {i}": real(folder) for i, folder in enumerate(options.run, 1)}
    heads = [f"{ratio} at {part}" for ratio in RATIOS for part in (0.5, 0.25)]
    print(f"{'noise':<16}{'steps':>6}  false   " + "  ".join(heads))
    rows = []
    for name, noise in noises.items():
        for length in LENGTHS:
            row = one_row(name, noise, length, options.series)
            rows.append(row)
            shares = "  ".join(f"{row['found'][head]:>11.2f}" for head in heads)
            print(f"{name:<16}{length:>6}  {row['false_alarms']:.3f}{shares}", flush=True)
    document = {
        **stamp(),
        "command": f"python benchmarks/run/shifts.py --series {options.series}"
        + (f" --run ({len(options.run)} real runs)" if options.run else ""),
        "rows": rows,
    }
    OUT.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
