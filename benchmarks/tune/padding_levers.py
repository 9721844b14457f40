"""What the levers for padding give on two scripts, beside what was predicted.

    python benchmarks/tune/padding_levers.py [--rounds 7]

Two sizes of tests/specimens/padded_texts.py: in one, layers that work on each position alone take
nearly all of the time, in the other attention over the square of the length has a good part. The
command as written and each lever run in processes of their own, in random order in each round; the
gain is the median over rounds of the ratio of CPU times of a step, with its range. The prediction
comes from the facts and the phases of one more run as written: the model's phases shrink with the
positions (least) or with their square (most). Results go to benchmarks/results/padding_levers.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import stamp

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from end_to_end.harness import STEPTIME, environment, run_folder
from steptime.core.process_end import ProcessEnd, RunState
from steptime.levers import file_of, load
from steptime.measure.fold.run_fold import measure
from steptime.measure.fold.run_records import read_records
from steptime.measure.tried.trial_lines import read_trial
from steptime.measure.values.measurement import Measurement

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "tests" / "specimens" / "padded_texts.py"
OUT = ROOT / "benchmarks" / "results" / "padding_levers.json"
SCRIPTS = {
    "positions": ("--steps", "64", "--rows", "2048", "--width", "96", "--length", "128"),
    "attention": ("--steps", "64", "--rows", "2048", "--width", "16", "--length", "256"),
}
LEVERS: Mapping[str, Mapping[str, Any]] = {
    "trim_padding": {"multiple_of": 1},
    "length_grouping": {"window": 16, "trims": True},
}
MODEL = ("forward", "loss", "backward")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    print(f"{'script':<12} {'lever':<16} {'predicted':>14} {'measured':>9}  range")
    rows = [row for name in SCRIPTS for row in compare(name, options.rounds)]
    document = {
        **stamp(),
        "command": f"python benchmarks/tune/padding_levers.py --rounds {options.rounds}",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, 1 thread",
        "rows": rows,
    }
    OUT.write_text(json.dumps(document, indent=1) + "\n")


def compare(name: str, rounds: int) -> list[dict[str, Any]]:
    """Run the script as written and with each lever, in turn."""
    facts, as_written = run(name, None)
    times: dict[str, list[float]] = {lever: [] for lever in LEVERS}
    for _ in range(rounds):
        arms = [None, *LEVERS]
        random.shuffle(arms)
        found = {arm: step_cpu_s(run(name, arm)[1]) for arm in arms}
        for lever in LEVERS:
            times[lever].append(found[None] / found[lever])
    return [one_row(name, lever, ratios, facts, as_written) for lever, ratios in times.items()]


def one_row(
    name: str,
    lever: str,
    ratios: list[float],
    facts: Mapping[str, Any],
    as_written: Measurement,
) -> dict[str, Any]:
    """What was measured of a lever, and what was predicted."""
    (loader,) = facts["loaders"]
    which = "longest_fraction" if lever == "trim_padding" else "grouped_fraction"
    left = loader["padding"][which]
    share = sum(p.fraction or 0.0 for p in as_written.phases if p.name in MODEL)
    predicted = [1 / (1 - share + share * left**power) for power in (1, 2)]
    row = {
        "script": name,
        "lever": lever,
        "positions_left": left,
        "share_of_model": share,
        "predicted": predicted,
        "measured": median(ratios),
        "range": [min(ratios), max(ratios)],
        "n": len(ratios),
    }
    words = f"{predicted[0]:.2f} to {predicted[1]:.2f}x"
    spread = f"{min(ratios):.2f} to {max(ratios):.2f}x, n={len(ratios)}"
    print(f"{name:<12} {lever:<16} {words:>14} {row['measured']:>8.2f}x  {spread}", flush=True)
    return row


def run(name: str, lever: str | None) -> tuple[Mapping[str, Any], Measurement]:
    """One run of the script in a process of its own: the facts that it told, and its times."""
    with tempfile.TemporaryDirectory() as where:
        folder = Path(where)
        asked = [] if lever is None else [asked_for(lever)]
        plan = {"schema": 1, "mode": "trial", "levers": asked, "is_live": False, "quality": None}
        (folder / "plan.json").write_text(json.dumps(plan | {"probe": lever is None}))
        variables = environment(folder, STEPTIME_PLAN=str(folder / "plan.json"))
        command = [*STEPTIME, "run", "--", sys.executable, str(SCRIPT), *SCRIPTS[name]]
        subprocess.run(command, cwd=folder, env=variables, check=True, capture_output=True)
        found = run_folder(folder)
        end = ProcessEnd(state=RunState.FINISHED, exit_code=0)
        return read_trial(found)[0].facts, measure(read_records(found), end=end)


def asked_for(lever: str) -> dict[str, Any]:
    """The lever as it stands in a plan."""
    return {"name": lever, "settings": dict(LEVERS[lever]), "file": file_of(load(lever))}


def step_cpu_s(measurement: Measurement) -> float:
    """CPU time of a steady step."""
    assert measurement.steady is not None
    assert measurement.steady.step_cpu_s is not None
    return measurement.steady.step_cpu_s.estimate


if __name__ == "__main__":
    main()
