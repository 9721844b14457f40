"""How often the headline of a report is the one that an owner would act on, healthy and busy.

    python benchmarks/run/headlines.py [--repeat 10] [--minutes 20] [--only NAME ...]

The right headline of each specimen stood in tests/end_to_end/ailments.py before any run: its kind,
its cause, and the line marked in the specimen. A headline is what the report opens with; one that
names others' programs is wrong for a specimen that is slow by itself. Each round runs every
specimen once as the machine is and once beside two loops that keep two cores busy, in random order.
Results go to benchmarks/results/headlines.json after each round.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import BENCHMARKS, ENVIRONMENT, ROOT, conditions

sys.path.insert(0, str(ROOT / "tests"))

import steptime
from end_to_end.ailments import AILMENTS, Ailment
from steptime.report.words.run.advice import choose_headline

OUT = BENCHMARKS / "results" / "headlines.json"
NAMES = ("slow fetch", "costly collate", "augmentation", "loop over elements")
LIMIT_S = 150
NUM_NEIGHBORS = 2


@contextmanager
def busy_loops() -> Iterator[None]:
    """Two processes that never rest."""
    burn = [sys.executable, "-I", "-S", "-c", "while True: pass"]
    children = [subprocess.Popen(burn) for _ in range(NUM_NEIGHBORS)]
    try:
        yield
    finally:
        for child in children:
            child.kill()
            child.wait()


def run_once(ailment: Ailment) -> dict[str, Any]:
    """One run and its headline; a failed run is a wrong one."""
    load, began = os.getloadavg()[0], time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-m", "steptime", "run", "--"]
        words += [sys.executable, str(ailment.path), *ailment.args]
        try:
            subprocess.run(
                words,
                cwd=folder,
                env=os.environ | ENVIRONMENT,
                capture_output=True,
                timeout=LIMIT_S,
                check=True,
            )
            (run,) = (Path(folder) / ".steptime" / "runs").iterdir()
            diagnosis = steptime.load(run).diagnosis
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            return {"right": False, "headline": f"failed: {type(error).__name__}"}
    found = None if diagnosis is None else choose_headline(diagnosis)
    kind = None if found is None or found.kind is None else found.kind.value
    where = "" if found is None else found.where or ""
    is_named = found is not None and (kind, found.cause) == (ailment.kind, ailment.cause)
    return {
        "right": is_named,
        "line_right": is_named and is_at(where, ailment),
        "headline": None if found is None else f"{kind}/{found.cause}",
        "where": Path(where).name or None,
        "load_average": load,
        "wall_s": round(time.monotonic() - began, 1),
    }


def is_at(where: str, ailment: Ailment) -> bool:
    """Whether the place is the marked line of the specimen, or has it among its lines."""
    file, _, lines = where.rpartition(":")
    if Path(file).name != ailment.path.name or ailment.line is None:
        return False
    first, _, last = lines.partition("-")
    return int(first) <= ailment.line <= int(last or first)


def sum_up(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """What a row of the table says."""
    loads = [run["load_average"] for run in runs if "load_average" in run]
    return {
        "n": len(runs),
        "right": sum(run["right"] for run in runs),
        "line_right": sum(run.get("line_right", False) for run in runs),
        "headlines": Counter(str(run["headline"]) for run in runs),
        "median_load_average": statistics.median(loads) if loads else None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=10)
    parser.add_argument("--minutes", type=float, default=20.0, help="no round begins after that")
    parser.add_argument("--only", nargs="+", default=list(NAMES), choices=list(AILMENTS))
    options = parser.parse_args()
    chance, began = random.Random(0), time.monotonic()
    runs: dict[str, dict[str, list[dict[str, Any]]]] = {
        arm: {name: [] for name in options.only} for arm in ("as it was", "busy")
    }
    started = conditions() | {"busy": f"{NUM_NEIGHBORS} loops that never rest"}
    for number in range(1, options.repeat + 1):
        pairs = [(arm, name) for arm in runs for name in options.only]
        for arm, name in chance.sample(pairs, len(pairs)):
            if arm == "busy":
                with busy_loops():
                    run = run_once(AILMENTS[name])
            else:
                run = run_once(AILMENTS[name])
            runs[arm][name].append(run)
            print(f"{number} {arm}: {name}: {run}", file=sys.stderr, flush=True)
        table = {arm: {n: sum_up(found) for n, found in of.items()} for arm, of in runs.items()}
        document = {"conditions": started, "rounds": number, "table": table}
        OUT.write_text(json.dumps(document, indent=1) + "\n")
        if time.monotonic() - began > 60 * options.minutes:
            break
    for arm, rows in table.items():
        for name, row in rows.items():
            print(f"{arm:<10} {name:<20} {row['right']}/{row['n']} line {row['line_right']}")


if __name__ == "__main__":
    main()
