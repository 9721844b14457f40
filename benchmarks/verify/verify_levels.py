"""How often a judgement over seeds passes a planted loss, and how often it fails equal trainings.

    python benchmarks/verify/verify_levels.py --tables 2000

Tables of runs are drawn from a model of a training: a curve that falls by a power of the steps,
with a level of its own for each seed. Each table is judged by `steptime.verify.convergence` with a
margin in seed-SDs, once and in three looks (3, 5 and 10 runs), beside a plain t-test and ictonyx's
`compare_two_models` as people use them: "no difference" where p is above 0.05. Permutations, which
the verdict only prints beside its own p, are left out. ictonyx is measured where it is installed;
its folder may be named by --ictonyx. Results go to benchmarks/results/verify_levels.json.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import platform
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import scipy
from scipy.stats import ttest_ind

from steptime.verify.convergence import judge_training as judging
from steptime.verify.convergence.judge_training import judge_training
from steptime.verify.convergence.summaries import final_of
from steptime.verify.values.seed_runs import Margin, TrainingQuestion, TrainingRun

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import stamp

RESULTS = Path(__file__).resolve().parents[1] / "results" / "verify_levels.json"
POINTS = tuple(float(500 * number) for number in range(1, 11))
SD = 0.01
LOOKS = (3, 5, 10)
PLANS = ((2.0, 6), (1.5, 9))
"""Margins in seed-SDs, and the runs of each arm with which they are judged once."""

OTHERS_RUNS = 6
"""Runs of each arm for the tests of others: ictonyx answers from six on."""
MOST_FOR_OTHERS = 200
"""Tables of each row that others are asked about: ictonyx draws thousands of times for each."""

Test = Callable[[list[float], list[float]], float]


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


def finals_of(table: list[TrainingRun], arm: str) -> list[float]:
    """Return the final losses of an arm."""
    return [final_of(run) for run in table if run.arm == arm]


def by_t_test(ours: list[float], theirs: list[float]) -> float:
    """Return the p of a plain t-test."""
    return float(ttest_ind(ours, theirs).pvalue)


def find_ictonyx(folder: str | None) -> Test | None:
    """Return the p of its comparison of two models; None where it is not installed."""
    if folder is not None:
        sys.path.append(folder)
    try:
        import pandas
        from ictonyx.analysis import compare_two_models
    except ImportError as error:
        print(f"ictonyx is not measured: {error}")
        return None
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")

    def by_ictonyx(ours: list[float], theirs: list[float]) -> float:
        found = compare_two_models(pandas.Series(ours), pandas.Series(theirs))
        return float(found.p_value)

    return by_ictonyx


def count_row(
    chance: numpy.random.Generator, plan: tuple[float, int], worse_by: float, num_tables: int,
    tests: dict[str, Test],
) -> dict[str, Any]:  # fmt: skip
    """Judge tables with one planted loss; return how often each answer came."""
    margin = Margin(amount=plan[0] * SD)
    once, looks, plain = Counter[str](), Counter[str](), Counter[str]()
    for number in range(num_tables):
        table = a_table(chance, max(LOOKS[-1], plan[1]), worse_by)
        few = first(table, plan[1])
        once[judge_training(few, TrainingQuestion(margin=margin)).outcome.value] += 1
        looks[judge_in_looks(table, margin)] += 1
        if number >= MOST_FOR_OTHERS:
            continue
        six = first(table, OTHERS_RUNS)
        for name, test in tests.items():
            arms = (finals_of(six, "reference"), finals_of(six, "candidate"))
            plain[name] += test(*arms) > 0.05
        plain["ours passes with 6 runs, margin 1 SD"] += (
            judge_training(six, TrainingQuestion(margin=Margin(amount=SD))).outcome.value == "PASS"
        )
    num_others = min(num_tables, MOST_FOR_OTHERS)
    return {
        "margin_sds": plan[0],
        "num_runs_once": plan[1],
        "planted_sds": worse_by,
        "num_tables": num_tables,
        "once": dict(once),
        "three_looks": dict(looks),
        "num_tables_for_others": num_others,
        "no_difference_with_6_runs": dict(plain),
    }


def main() -> None:
    """Judge the tables, print how often each answer came, and save it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tables", type=int, default=2000, help="of each row")
    parser.add_argument("--ictonyx", metavar="FOLDER", help="where ictonyx is installed")
    options = parser.parse_args()
    judging.permuted_p = lambda *_, margin: None  # printed beside the verdict, never part of it
    tests = {"t-test": by_t_test}
    ictonyx = find_ictonyx(options.ictonyx)
    if ictonyx is not None:
        tests["ictonyx"] = ictonyx
    chance, began_s = numpy.random.default_rng(11), time.process_time()
    rows = []
    for plan in PLANS:
        print(f"margin {plan[0]:g} SD; once with {plan[1]} runs; looks at {LOOKS}")
        for worse_by in (-1.0, 0.0, 1.0, plan[0], plan[0] + 1):
            row = count_row(chance, plan, worse_by, options.tables, tests)
            rows.append(row)
            told = {
                name: {word: number / row[of] for word, number in row[name].items()}
                for name, of in (
                    ("once", "num_tables"),
                    ("three_looks", "num_tables"),
                    ("no_difference_with_6_runs", "num_tables_for_others"),
                )
            }
            print(f"  planted {worse_by:+.1f} SD: {told}", flush=True)
    half = 1.96 * math.sqrt(0.05 * 0.95 / options.tables)
    print(f"half width of a share of 5 %: {half:.4f}")
    RESULTS.write_text(
        json.dumps(
            {
                "rows": rows,
                "looks": LOOKS,
                "half_width_of_5_percent": half,
                "cpu_s": round(time.process_time() - began_s, 1),
                "scipy": scipy.__version__,
                **stamp(),
                "python": platform.python_version(),
                "processor": platform.machine(),
                "ictonyx": None if ictonyx is None else sys.modules["ictonyx"].__version__,
            },
            indent=1,
            sort_keys=True,
        )
        + "\n"
    )


if __name__ == "__main__":
    main()
