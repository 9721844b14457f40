"""How many runs a margin needs, and which margin a number of runs decides."""

from __future__ import annotations

import math

from steptime.verify.convergence.statistics import (
    LEVEL,
    load_scipy,
    margin_decided,
    runs_needed,
    sd_for_planning,
)
from steptime.verify.values.seed_runs import PowerPlan, PowerRow, TrainingVerdict

POWERS = (0.8, 0.9)
LEAST_RUNS = 3
"""Runs an arm; fewer give estimates and no verdict."""

BUDGETS = (3, 5, 8, 10, 20)


def power_of_verdict(found: TrainingVerdict) -> PowerPlan | None:
    """Return what usual numbers of runs decide with the spread that a judgement saw.

    None where the runs are pairs, whose differences have another spread.
    """
    if not found.differences or found.are_paired:
        return None
    final = found.differences[0]
    sd = math.sqrt((final.reference_sd**2 + final.candidate_sd**2) / 2)
    if sd <= 0:
        return None
    return plan_power(sd, margin=final.margin, pilots=2 * found.num_runs - 1)


def plan_power(
    sd: float,
    *,
    margin: float | None = None,
    num_runs: int | None = None,
    pilots: int | None = None,
) -> PowerPlan:
    """Return what runs with this spread can decide.

    Args:
        sd: standard deviation of a run's metric, above 0.
        margin: the worsening that does not matter, in the same unit.
        num_runs: runs of each arm that a budget allows; None for usual numbers.
        pilots: runs that `sd` was found from; few of them may show too little, so their upper 80 %
            bound is planned with.

    Raises:
        ValueError: a number is out of its range.
        MissingExtraError: scipy is not installed.
    """
    load_scipy()
    for name, value, least in (("sd", sd, 0.0), ("margin", margin, 0.0)):
        if value is not None and not value > least:
            raise ValueError(f"{name} must be above {least:g}, got {value:g}")
    for name, number in (("num_runs", num_runs), ("pilots", pilots)):
        if number is not None and number < 2:
            raise ValueError(f"{name} must be 2 or more, got {number}")
    wide = sd if pilots is None else sd_for_planning(sd, pilots)

    def needed(*, is_still: bool) -> tuple[int | None, ...]:
        if margin is None:
            return ()
        found = [runs_needed(margin / wide, power=p, is_still=is_still) for p in POWERS]
        return tuple(None if one is None else max(LEAST_RUNS, one) for one in found)

    return PowerPlan(
        sd=wide,
        sd_seen=None if pilots is None else sd,
        num_pilots=pilots,
        margin=margin,
        powers=POWERS,
        level=LEVEL,
        num_runs_not_worse=needed(is_still=False),
        num_runs_still=needed(is_still=True),
        rows=tuple(_row(one, wide) for one in ((num_runs,) if num_runs else BUDGETS)),
    )


def _row(num_runs: int, sd: float) -> PowerRow:
    return PowerRow(
        num_runs=num_runs,
        not_worse=tuple(sd * margin_decided(num_runs, power=one) for one in POWERS),
        still=tuple(sd * margin_decided(num_runs, power=one, is_still=True) for one in POWERS),
    )
