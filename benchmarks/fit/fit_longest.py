"""A planted long sample: is its batch named before it comes, and is the peak of its step forecast?

    python benchmarks/fit/fit_longest.py [--only CASE ...] [--seeds N ...] [--out FILE]

Each case trains `tests/specimens/long_sample.py`, whose data set keeps 400 texts as lists of
tokens, one of them eight times as long as the longest of the others, at a place that the seed
draws. `steptime run` sees the first 16 of its steps. The whole epoch then runs without Steptime,
under torch.profiler: the script says in which batch the long text came, and all events of torch's
CPU allocator say the peak of that step. A row is right if sample and batch are those, and, where
the batch had not come yet, if the true peak lies in the interval. The figures go to
benchmarks/results/fit_longest.json; `--only` and `--seeds` renew those rows.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from peak_of_a_run import ALONE, LIMIT_S, profile

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import stamp

BENCHMARKS = Path(__file__).resolve().parents[1]
SCRIPT = BENCHMARKS.parent / "tests" / "specimens" / "long_sample.py"
OUT = BENCHMARKS / "results" / "fit_longest.json"

STEPS, ROWS, LONG = 16, 400, 256
CASES: Mapping[str, tuple[str, ...]] = {
    "shuffled": (),
    "in order": ("--in-order",),
    "two workers": ("--workers", "2"),
    "batches of 8": ("--batch", "8"),
    "others all alike": ("--shortest", "32", "--usual", "32"),
}
SEEDS = (0, 1, 2, 3)


def run(command: Sequence[str], folder: Path) -> str:
    """Run a command in a folder; return what it printed."""
    own = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "STEPTIME"))}
    done = subprocess.run(
        command, cwd=folder, env=own | ALONE, capture_output=True, timeout=LIMIT_S, check=True
    )
    return done.stdout.decode()


def measure(case: str, seed: int) -> dict[str, Any]:
    """One row: what was said after 16 steps, and what came."""
    plant = random.Random(f"{case} {seed}").randrange(ROWS)
    words = [*CASES[case], "--seed", str(seed), "--plant", str(plant), "--long", str(LONG)]
    steps = ROWS // (8 if "--batch" in words else 4)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        early = [str(SCRIPT), *words, "--steps", str(STEPS)]
        said = [sys.executable, "-m", "steptime", "run", "--json", "result.json", "--"]
        run([*said, sys.executable, *early], folder)
        document = json.loads((folder / "result.json").read_bytes())
        told = document["data"]["measurement"]["longest_batch"]
        whole = [*words, "--steps", str(steps)]
        printed = run([sys.executable, __file__, "--profile", "peaks.json", *whole], folder)
        peaks = json.loads((folder / "peaks.json").read_text())
    came = re.search(r"came in batch (\d+)", printed)
    assert came is not None, printed
    batch = int(came[1])
    row: dict[str, Any] = {"case": case, "seed": seed, "plant": plant, "came_in_batch": batch}
    row |= {"true_peak": peaks[batch], "largest": told["largest"], "peak": told["peak"]}
    row |= {"is_to_come": told["is_to_come"], "seen_peak": told["seen_peak_bytes"]}
    print(describe(row), flush=True)
    return row


def is_named(row: Mapping[str, Any]) -> bool:
    """Whether the planted sample and its batch are those that were said."""
    said = row["largest"] or {}
    is_right = (said.get("sample"), said.get("batch")) == (row["plant"], row["came_in_batch"])
    return is_right and row["is_to_come"] is (row["came_in_batch"] >= STEPS)


def is_within(row: Mapping[str, Any]) -> bool | None:
    """Whether the true peak lies in the forecast; None where there was none to make."""
    peak = row["peak"]
    if not row["is_to_come"]:
        return None
    return peak is not None and peak["low"] <= row["true_peak"] <= peak["high"]


def describe(row: Mapping[str, Any]) -> str:
    """Return a row of the printed table."""
    peak = row["peak"]
    text = (
        f"{row['case']:18} {row['seed']}  sample {row['plant']:3}  batch {row['came_in_batch']:3}"
    )
    text += f"  {'named' if is_named(row) else 'MISSED':7}"
    if peak is None:
        return f"{text} it had come"
    low, guess, high, true = (
        f"{size / 1024:,.0f}"
        for size in (peak["low"], peak["estimate"], peak["high"], row["true_peak"])
    )
    error = peak["estimate"] / row["true_peak"] - 1
    return f"{text} {low} to {high} KiB, about {guess}; true {true} ({error:+.1%}, {peak['how']})"


def main() -> int:
    if sys.argv[1:2] == ["--profile"]:
        profile(SCRIPT, Path(sys.argv[2]).resolve(), sys.argv[3:])
        return 0
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    parser.add_argument("--out", type=Path, default=OUT, help="where the figures go")
    options = parser.parse_args()
    import torch

    known = json.loads(options.out.read_text())["rows"] if options.out.exists() else []
    rows = {(row["case"], row["seed"]): row for row in known}
    for case in options.only:
        rows |= {(case, seed): measure(case, seed) for seed in options.seeds}
    table = list(rows.values())
    within = [one for row in table if (one := is_within(row)) is not None]
    named = sum(map(is_named, table))
    print(f"{named} of {len(table)} named; {sum(within)} of {len(within)} peaks in the interval")
    figures = {
        **stamp(),
        "python": platform.python_version(),
        "versions": {"torch": str(torch.__version__)},
        "device": "cpu, 1 thread",
        "n": len(table),
        "named": named,
        "within": [sum(within), len(within)],
        "rows": table,
    }
    options.out.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    return 0 if named == len(table) and all(within) else 1


if __name__ == "__main__":
    sys.exit(main())
