"""Whole studies with real processes: no-ops that must not be claimed, and a grid that is known.

    python benchmarks/tune/real_studies.py [--no-ops 4] [--oracles 1] [--budget 300]

A no-op study tries three levers that do nothing on a tiny training and should claim no speedup.
The oracle is a training with three kinds of waste and a live lever with three settings on
each: all 64 states are measured one after the other in processes of their own (process CPU time),
then `tune` searches. Told are the share of the best state's speedup that it reached, by that table,
and how many states it measured. Results go to benchmarks/results/real_studies.json.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import subprocess
import sys
import tempfile
from itertools import product
from pathlib import Path
from typing import Any

from steptime.levers.base import Lever
from steptime.tune.run_study import run_study
from steptime.tune.study_options import StudyOptions

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import stamp

BENCHMARKS = Path(__file__).resolve().parents[1]
TESTS = BENCHMARKS.parent / "tests" / "end_to_end"
OUT = BENCHMARKS / "results" / "real_studies.json"
WASTES = ("alpha", "beta", "gamma")


def load(name: str) -> Any:
    """The module of a lever of the tests."""
    spec = importlib.util.spec_from_file_location(name, TESTS / "levers" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def study(script: str, levers: tuple[Lever, ...], budget_s: float) -> Any:
    """A study of one of the tests' scripts."""
    with tempfile.TemporaryDirectory() as name:
        options = StudyOptions(
            command=(sys.executable, str(TESTS / "scripts" / script)),
            store=Path(name),
            levers=levers,
            budget_s=budget_s,
        )
        return run_study(options, progress=lambda _: None)


def no_op(number: int, budget_s: float) -> dict[str, Any]:
    """A study in which every lever does nothing."""
    make = load("acting").make
    found = study("burning.py", tuple(make(f"no_op_{i}", "nothing") for i in range(3)), budget_s)
    row = describe(found)
    print(f"no-op study {number}: {row}", flush=True)
    return row


def describe(found: Any) -> dict[str, Any]:
    """Outcome, speedup and floor."""
    gain = found.speedup
    return {
        "outcome": found.outcome and found.outcome.value,
        "speedup": gain and [gain.estimate, gain.low, gain.high, gain.n],
        "noise_floor": found.noise_floor,
        "quality": found.quality and found.quality.outcome.value,
        "seconds": (found.ended_unix_s or 0) - found.started_unix_s,
    }


def measure(levels: tuple[int, ...], steps: int) -> float:
    """CPU time of a step with these levels [s]."""
    words = [str(TESTS / "scripts" / "wasteful.py"), "--steps", str(steps), "--levels"]
    done = subprocess.run(
        [sys.executable, *words, *map(str, levels)], capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def oracle(budget_s: float, steps: int) -> dict[str, Any]:
    """The whole grid, then a search over it."""
    table = {levels: measure(levels, steps) for levels in product(range(4), repeat=3)}
    make = load("saving").make
    found = study("wasteful.py", tuple(make(name) for name in WASTES), budget_s)
    chosen = {one.name: int(one.settings["level"]) for one in found.recipe}
    levels = tuple(chosen.get(name, 0) for name in WASTES)
    best = min(table, key=lambda one: table[one])
    states = {
        json.dumps([[one.name, dict(one.settings)] for one in trial.state])
        for trial in found.trials
        if trial.state and trial.kind == "live"
    }
    row = describe(found) | {
        "best": best,
        "best_speedup": table[0, 0, 0] / table[best],
        "chosen": levels,
        "chosen_speedup": table[0, 0, 0] / table[levels],
        "share_of_best": table[best] / table[levels],
        "num_states_measured": len(states),
        "num_states": len(table),
    }
    print(f"oracle: {row}", flush=True)
    return row


def main() -> None:
    """Run the studies and save what came of them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--no-ops", type=int, default=4)
    parser.add_argument("--oracles", type=int, default=1)
    parser.add_argument("--budget", type=float, default=300.0, help="of each study [s]")
    parser.add_argument("--steps", type=int, default=100, help="a state of the grid")
    options = parser.parse_args()
    os.environ |= {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    document = {
        **stamp(),
        "command": " ".join(["python", "benchmarks/tune/real_studies.py", *sys.argv[1:]]),
        "python": platform.python_version(),
        "num_cores": os.cpu_count(),
        "load_before": os.getloadavg(),
        "no_ops": [no_op(i, options.budget) for i in range(options.no_ops)],
        "oracles": [oracle(options.budget, options.steps) for _ in range(options.oracles)],
        "load_after": os.getloadavg(),
    }
    OUT.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
