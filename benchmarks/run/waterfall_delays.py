"""What a delay that is planted in one part of a real step does to every part of its waterfall.

    python benchmarks/run/waterfall_delays.py [--rounds N]

tests/specimens/delayed.py with each delay in turn, and without one before each, so that both of a
pair meet the same neighbors. For each: how much longer its own part became, how much the most any
other part did (what other programs took apart), the share of the step that is unexplained, and
whether the picture is conclusive; over all rounds median and range. The ceilings are made up: they
only move the bounds of arithmetic and memory. Results go to
benchmarks/results/waterfall_delays.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from steptime.diagnose.values.reach_values import Waterfall
from steptime.diagnose.waterfall.step_waterfall import make_picture
from steptime.measure.fold.run_fold import measure
from steptime.measure.fold.run_records import read_records

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import BENCHMARKS, ENVIRONMENT, ROOT, conditions

TESTS = ROOT / "tests"
sys.path.insert(0, str(TESTS))

from end_to_end.test_waterfall import CEILINGS, GROUPS, WAYS, seen  # noqa: E402

OUT = BENCHMARKS / "results" / "waterfall_delays.json"


def run(way: str, nproc: int | None) -> Waterfall:
    """The waterfall of one run of the specimen."""
    launcher = () if nproc is None else ("-m", "torch.distributed.run", "--standalone")
    ranks = () if nproc is None else (f"--nproc-per-node={nproc}",)
    script = str(TESTS / "specimens" / "delayed.py")
    with tempfile.TemporaryDirectory() as folder:
        observed = (sys.executable, "-m", "steptime", "run", "--store", folder, "--")
        subprocess.run(
            [*observed, sys.executable, *launcher, *ranks, script, way],
            env={**os.environ, **ENVIRONMENT},
            capture_output=True,
            check=True,
        )
        (found,) = (Path(folder) / ".steptime" / "runs").iterdir()
        return make_picture(measure(read_records(found)), CEILINGS).waterfall


def compare(way: str, grown: str, nproc: int | None) -> dict[str, Any]:
    """One pair: without the delay, and with it."""
    before, after = run("none", nproc), run(way, nproc)
    more = {name: seen(after, name) - seen(before, name) for name in GROUPS}
    others = {name: time_s for name, time_s in more.items() if name != grown}
    most = max(others, key=lambda name: others[name])
    return {
        "step_s": [before.step_time_s, after.step_time_s],
        "own_s": more[grown],
        "other_s": others[most],
        "other": most,
        "unexplained_fraction": after.fraction_of("unexplained"),
        "other_programs_fraction": after.fraction_of("contention"),
        "is_conclusive": after.is_conclusive,
    }


def show(way: str, pairs: list[dict[str, Any]]) -> str:
    """A row: medians, with their range over the rounds."""
    own, other, unexplained = (
        [pair[name] for pair in pairs] for name in ("own_s", "other_s", "unexplained_fraction")
    )
    sure = sum(pair["is_conclusive"] for pair in pairs)
    return (
        f"{way:<15}{median(own) * 1e3:8.1f} ({min(own) * 1e3:.1f} to {max(own) * 1e3:.1f}) ms"
        f"{median(other) * 1e3:10.1f} ms ({pairs[0]['other']})"
        f"{max(unexplained) * 100:9.1f} %{sure:6} of {len(pairs)}"
    )


def main() -> None:
    """Run all pairs, print a row each, keep them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    pairs: dict[str, list[dict[str, Any]]] = {way: [] for way, _, _ in WAYS}
    for done in range(1, rounds + 1):
        for way, grown, nproc in WAYS:
            pairs[way].append(compare(way, grown, nproc))
        text = json.dumps({**conditions(), "rounds": done, "pairs": pairs}, indent=1)
        OUT.write_text(text + "\n")
    print("delay in       its part grew by            any other by    unexplained  conclusive")
    for way, found in pairs.items():
        print(show(way, found))


if __name__ == "__main__":
    main()
