"""How often a study is right when the truth is known: no-ops claimed, true gains found.

    python benchmarks/tune/honesty.py [--studies 200] [--no-ops 1000] [--only busy wild]

Whole studies over a scripted bench (tests/scripted_bench.py): nine levers, and noise as on a
shared machine: dependent block times, far outliers, bursts of others' work, drift; `others` is the
load that decides whether CPU time may judge. A row is a noise and one lever's true speedup, 1.00
for studies in which every lever does nothing. Results go to benchmarks/results/honesty.json, where
those of other noises stay with `--only`. No
process is started; that the noise is like a real machine's is an assumption.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import stamp

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from scripted_bench import LEVERS, NOISES, ScriptedBench
from steptime.tune.search.search import SearchOptions, search
from steptime.tune.values.study_values import StudyOutcome

OUT = Path(__file__).resolve().parents[1] / "results" / "honesty.json"
LEVER = "lever_2"
SPEEDUPS = (1.0, 1.05, 1.1, 1.3, 2.0)
LOADS = (0.0, 0.6)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--studies", type=int, default=200, help="a row with a true gain")
    parser.add_argument("--no-ops", type=int, default=1000, help="a row without any")
    parser.add_argument("--only", nargs="+", default=list(NOISES), choices=list(NOISES))
    options = parser.parse_args()
    rows = []
    print(
        f"{'noise':<10} others  true   faster nothing  noisy  other levers  holds the truth  floor"
    )
    for noise in options.only:
        for others in LOADS:
            for speedup in SPEEDUPS:
                count = options.no_ops if speedup == 1.0 else options.studies
                row = one_row(noise, others, speedup, count)
                rows.append(row)
                show(row)
    before = json.loads(OUT.read_text())["rows"] if OUT.exists() else []
    rows += [row for row in before if row["noise"] not in options.only]
    rows.sort(key=lambda row: list(NOISES).index(row["noise"]))
    document = {
        **stamp(),
        "command": f"python benchmarks/tune/honesty.py --studies {options.studies}"
        f" --no-ops {options.no_ops}",
        "budget_s": 600,
        "levers": [lever.name for lever in LEVERS],
        "rows": rows,
    }
    OUT.write_text(json.dumps(document, indent=1) + "\n")


def one_row(noise: str, others: float, speedup: float, count: int) -> dict[str, Any]:
    """Studies that differ in their noise alone."""
    outcomes: Counter[str] = Counter()
    floors, claims = [], []
    num_others = num_held = num_alone = 0
    for seed in range(count):
        gains = {LEVER: math.log(speedup)} if speedup != 1 else {}
        bench = ScriptedBench(gains=gains, noise=NOISES[noise], seed=seed, others_cores=others)
        bench.may_keep_two = seed % 2 == 1
        found = search(bench, SearchOptions(levers=LEVERS, budget_s=bench.budget_s))
        assert found.outcome is not None
        outcomes[found.outcome.value] += 1
        claims.append(found.outcome is StudyOutcome.FASTER)
        floors.append(found.noise_floor or 0.0)
        names = {one.name for one in found.recipe}
        num_others += bool(names - {LEVER})
        if names == {LEVER} and found.speedup is not None:
            num_alone += 1
            num_held += found.speedup.low <= speedup <= found.speedup.high
    return {
        "noise": noise,
        "others_cores": others,
        "true_speedup": speedup,
        "studies": count,
        "outcomes": dict(outcomes),
        "most_claims_in_forty": max(sum(claims[i : i + 40]) for i in range(0, count, 40)),
        "with_a_lever_that_does_nothing": num_others,
        "interval_holds_the_truth": [num_held, num_alone],
        "median_noise_floor": sorted(floors)[count // 2],
    }


def show(row: dict[str, Any]) -> None:
    """One line of the table."""
    outcomes = row["outcomes"]
    counts = "".join(f"{outcomes.get(o.value, 0):7}" for o in StudyOutcome)
    held, alone = row["interval_holds_the_truth"]
    print(
        f"{row['noise']:<10} {row['others_cores']:6.1f} {row['true_speedup']:5.2f}x {counts}"
        f" {row['with_a_lever_that_does_nothing']:13} {held:8}/{alone:<8}"
        f" {row['median_noise_floor']:6.1%}",
        flush=True,
    )


if __name__ == "__main__":
    main()
