"""What a candidate saves: in seconds of whole runs, at equal quality, and up to a target.

In: finished runs of both arms and the yardsticks of the reference. Out: `NetSpeed`, `TargetTime`.
All ratios are of the means of logs; a run that never reaches the target is counted, not averaged.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from steptime.verify.convergence.statistics import gain_of, mean
from steptime.verify.convergence.summaries import Yardsticks, crossing_of
from steptime.verify.values.seed_runs import (
    CANDIDATE,
    REFERENCE,
    NetSpeed,
    SummaryDifference,
    TargetTime,
    TrainingRun,
)

_LEVEL = 0.025
"""Of each end of a ratio's interval."""

_MOST_SAVED = -0.99
"""As a share of the training; a slope near zero would say more than all of it."""


def net_speed(
    reference: Sequence[TrainingRun],
    candidate: Sequence[TrainingRun],
    found: Yardsticks,
    final: SummaryDifference | None,
) -> NetSpeed | None:
    """Return what whole runs of the candidate save; None where their seconds are not known."""
    logs = []
    for arm in (reference, candidate):
        seconds = [run.seconds for run in arm if run.seconds and not run.has_diverged]
        if len(seconds) < 2 or min(seconds) <= 0:
            return None
        logs.append([-math.log(one) for one in seconds])
    gain = gain_of(logs[0], logs[1])
    low, high = gain.ends(_LEVEL)
    speed = [math.exp(one) for one in (gain.mean, low, high)]
    if final is None or found.slope <= 0:
        return NetSpeed(speedup=speed[0], low=speed[1], high=speed[2])
    gap = -final.estimate / found.slope / found.total
    net = [one / (1 + max(gap, _MOST_SAVED)) for one in speed]
    return NetSpeed(
        speedup=speed[0],
        low=speed[1],
        high=speed[2],
        net=net[0],
        net_low=net[1],
        net_high=net[2],
        gap_fraction=gap,
    )


def time_to_target(
    reference: Sequence[TrainingRun],
    candidate: Sequence[TrainingRun],
    found: Yardsticks,
    *,
    is_as_good: bool,
    price_s: float,
) -> TargetTime | None:
    """Return the time to the target; None where the seconds are not known.

    Args:
        reference: runs of the reference.
        candidate: runs of the candidate.
        found: the yardsticks, with the target.
        is_as_good: the candidate was found not worse.
        price_s: what it took to find and prepare the candidate, once [s].
    """
    if any(run.seconds is None and not run.seconds_at for run in (*reference, *candidate)):
        return None
    times = {
        REFERENCE: [_seconds_to(run, found) for run in reference],
        CANDIDATE: [_seconds_to(run, found) for run in candidate],
    }
    missed = {arm: sum(one is None for one in all_of) for arm, all_of in times.items()}
    ours = [one for one in times[REFERENCE] if one]
    theirs = [one for one in times[CANDIDATE] if one]
    if not ours or not theirs or missed[CANDIDATE]:
        return TargetTime(
            reference_s=_middle(ours) if ours else None,
            candidate_s=None,
            target=found.target,
            num_missed=missed,
            price_s=price_s,
        )
    reference_s, candidate_s = _middle(ours), _middle(theirs)
    ratio = low = high = None
    if len(ours) > 1 and len(theirs) > 1 and not missed[REFERENCE]:
        gain = gain_of(
            [-math.log(one) for one in ours], [-math.log(one + price_s) for one in theirs]
        )
        ends = gain.ends(_LEVEL)
        ratio, low, high = (math.exp(one) for one in (gain.mean, *ends))
    saved = reference_s - candidate_s
    return TargetTime(
        reference_s=reference_s,
        candidate_s=candidate_s,
        ratio=ratio,
        low=low,
        high=high,
        num_runs_to_earn=math.ceil(price_s / saved) if saved > 0 else None,
        is_faster=None if low is None else low > 1 and is_as_good,
        target=found.target,
        num_missed=missed,
        price_s=price_s,
    )


def _middle(seconds: Sequence[float]) -> float:
    """Return the geometric mean."""
    return math.exp(mean([math.log(one) for one in seconds]))


def _seconds_to(run: TrainingRun, found: Yardsticks) -> float | None:
    """Return when a run reached the target; None where it did not.

    Between two evaluations, and where only the seconds of the whole run are known, it is a line.
    """
    at = None if run.has_diverged else crossing_of(run, found.target, found.sign)
    if at is None:
        return None
    if not run.seconds_at:
        return (run.seconds or 0.0) * at / run.points[-1]
    place = next(number for number, point in enumerate(run.points) if point >= at)
    if place == 0:
        return run.seconds_at[0]
    before, after = run.points[place - 1], run.points[place]
    begun, ended = run.seconds_at[place - 1], run.seconds_at[place]
    return begun + (ended - begun) * (at - before) / (after - before)
