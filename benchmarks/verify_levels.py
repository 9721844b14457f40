"""How often a judgement over seeds passes a planted loss, and how often it fails equal trainings.

    python benchmarks/verify_levels.py --tables 2000

Tables of runs are drawn from a model of a training: a curve that falls by a power of the steps,
with a level of its own for each seed. Each table is judged by `steptime.verify.convergence` with a
margin of two seed-SDs, once and in three looks (3, 5 and 10 runs), beside a plain t-test as people
use it: "no difference" where p is above 0.05. Results go to benchmarks/results/verify_levels.json.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
from collections import Counter
from pathlib import Path

import numpy
import scipy
from scipy.stats import ttest_ind

from steptime.verify.convergence.judge_training import judge_training
from steptime.verify.convergence.summaries import final_of
from steptime.verify.values.seed_runs import Margin, TrainingQuestion, TrainingRun

RESULTS = Path(__file__).resolve().parent / "results" / "verify_levels.json"
POINTS = tuple(float(500 * number) for number in range(1, 11))
SD, MARGIN_IN_SDS = 0.01, 2.0
LOOKS = (3, 5, 10)
PLANTED = (-1.0, 0.0, 1.0, 2.0, 3.0)
"""Losses of the candidate, in seed-SDs; the margin is the last but one."""


def a_run(arm: str, seed: int, level: float) -> TrainingRun:
    """A training whose loss falls to its own level."""
    values = tuple(2.0 + level + 3.0 * (at / 100) ** -0.7 for at in POINTS)
    return TrainingRun(arm=arm, seed=str(seed), points=POINTS, values=values)


def a_table(chance: numpy.random.Generator, num_runs: int, worse_by: float) -> list[TrainingRun]:
    """Runs of both arms whose levels have the same spread."""
    return [
        a_run(arm, seed, float(level))
        for arm, shift in (("reference", 0.0), ("candidate", worse_by * SD))
        for seed, level in enumerate(chance.normal(shift, SD, num_runs))
    ]


def first(table: list[TrainingRun], num_runs: int) -> list[TrainingRun]:
    """Return the first runs of each arm."""
    return [run for run in table if int(run.seed or 0) < num_runs]


def judge_in_looks(table: list[TrainingRun], margin: Margin) -> str:
    """Return the first answer of three looks, or that there is none."""
    asked = TrainingQuestion(margin=margin, num_looks=3)
    for num_runs in LOOKS:
        outcome = judge_training(first(table, num_runs), asked).outcome.value
        if outcome != "INCONCLUSIVE":
            return outcome
    return "INCONCLUSIVE"


def says_no_difference(table: list[TrainingRun], num_runs: int) -> bool:
    """Return what a plain t-test of the final losses is read as."""
    arms = [
        [final_of(run) for run in first(table, num_runs) if run.arm == arm]
        for arm in ("reference", "candidate")
    ]
    return bool(ttest_ind(*arms).pvalue > 0.05)


def main() -> None:
    """Judge the tables, print how often each answer came, and save it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tables", type=int, default=2000, help="of each row")
    parser.add_argument("--runs", type=int, default=5, help="of each arm, where judged once")
    options = parser.parse_args()
    margin = Margin(amount=MARGIN_IN_SDS * SD)
    chance = numpy.random.default_rng(11)
    rows = []
    print(f"{'planted loss':>14} {'once: PASS':>11} {'FAIL':>6} {'3 looks: PASS':>14} {'FAIL':>6}"
          f" {'t-test: no difference':>22}")  # fmt: skip
    for worse_by in PLANTED:
        once, looks, plain = Counter[str](), Counter[str](), 0
        for _ in range(options.tables):
            table = a_table(chance, LOOKS[-1], worse_by)
            few = first(table, options.runs)
            once[judge_training(few, TrainingQuestion(margin=margin)).outcome.value] += 1
            looks[judge_in_looks(table, margin)] += 1
            plain += says_no_difference(table, options.runs)
        shares = [
            count / options.tables
            for count in (once["PASS"], once["FAIL"], looks["PASS"], looks["FAIL"], plain)
        ]
        told = [f"{share:.3f}" for share in shares]
        print(f"{worse_by:>11.0f} SD {told[0]:>11} {told[1]:>6} {told[2]:>14} {told[3]:>6}"
              f" {told[4]:>22}")  # fmt: skip
        rows.append(
            {
                "planted_sds": worse_by,
                "once": dict(once),
                "three_looks": dict(looks),
                "t_test_no_difference": plain,
                "num_tables": options.tables,
            }
        )
    half = 1.96 * math.sqrt(0.05 * 0.95 / options.tables)
    print(f"half width of a share of 5 %: {half:.4f}")
    RESULTS.write_text(
        json.dumps(
            {
                "rows": rows,
                "margin_sds": MARGIN_IN_SDS,
                "runs_once": options.runs,
                "looks": LOOKS,
                "scipy": scipy.__version__,
                "python": platform.python_version(),
            },
            indent=1,
            sort_keys=True,
        )
        + "\n"
    )


if __name__ == "__main__":
    main()
