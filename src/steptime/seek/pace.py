"""How fast a run comes to the target, against one that reached it, and when it cannot win.

In: when its evaluations came. Out: the time that it would take, or the reason to stop it. The rule
goes to wherever the run is made, so that it is stopped there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from steptime.seek.values.seek_values import SeekEnd, SeekRun

LAG = 2.0
"""A run is stopped where the best run had the same quality in half of the time."""
MIN_SHARE = 0.25
"""Not before this share of the best time: what starts slowly may still win."""
MIN_POINTS = 2
SLACK = 1.25
"""A run that takes this much longer than the best one is beyond the noise of seeds and clocks."""
MOST_TIMES = 20.0
"""What a run would have taken is never put above so many times what it ran."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRule:
    """When a run is ended before its own end.

    Attributes:
        target: the quality that ends it.
        is_better_down: smaller values are better.
        limit_s: it cannot win after this many seconds [s].
        is_limit_budget: the limit is what is left of the budget.
        best_at_s: when the evaluations of the best run came (num_points,) [s]; empty: none yet.
        best_values: the metric there (num_points,).
    """

    target: float
    is_better_down: bool
    limit_s: float
    is_limit_budget: bool = False
    best_at_s: tuple[float, ...] = ()
    best_values: tuple[float, ...] = ()


def is_as_good(value: float, other: float, *, is_better_down: bool) -> bool:
    """Return whether a value is as good as another one, or better."""
    return value <= other if is_better_down else value >= other


def reached_at(
    at_s: Sequence[float], values: Sequence[float], target: float, *, is_better_down: bool
) -> float | None:
    """Return when a quality was first there [s]; None where it never was."""
    for second, value in zip(at_s, values, strict=True):
        if is_as_good(value, target, is_better_down=is_better_down):
            return second
    return None


def why_stop(
    rule: StopRule, at_s: Sequence[float], values: Sequence[float], *, elapsed_s: float
) -> SeekEnd | None:
    """Return how a run that goes on ends now; None where it may go on.

    Args:
        rule: what holds for it.
        at_s: when its evaluations came (num_points,) [s].
        values: the metric there (num_points,).
        elapsed_s: since its start [s].
    """
    if any(not math.isfinite(value) for value in values):
        return SeekEnd.DIVERGED
    better_down = rule.is_better_down
    if reached_at(at_s, values, rule.target, is_better_down=better_down) is not None:
        return SeekEnd.REACHED
    if elapsed_s >= rule.limit_s:
        return SeekEnd.TIMED_OUT if rule.is_limit_budget else SeekEnd.PRUNED
    lag = lag_behind(rule, at_s, values)
    if lag is not None and len(values) >= MIN_POINTS and lag > LAG:
        is_early = at_s[-1] < MIN_SHARE * rule.best_at_s[-1]
        return None if is_early else SeekEnd.PRUNED
    return None


def lag_behind(rule: StopRule, at_s: Sequence[float], values: Sequence[float]) -> float | None:
    """Return how many times longer than the best run it took to its best value; None: unknown."""
    if not rule.best_at_s or not values:
        return None
    best = min(values) if rule.is_better_down else max(values)
    same = reached_at(rule.best_at_s, rule.best_values, best, is_better_down=rule.is_better_down)
    return at_s[-1] / (rule.best_at_s[-1] if same is None else same)


def would_take_s(run: SeekRun, rule: StopRule) -> float:
    """Return the time to the target of a run, for a censored one what its pace lets expect [s].

    The pace is that of the best run, at the quality that this one has reached. Where no run has
    reached the target, the way to it is taken as falling with the log of the time. It serves to
    say where to search, never as a result.
    """
    if run.time_to_target_s is not None:
        return run.time_to_target_s
    floor, ceiling = 1.05 * run.seconds, MOST_TIMES * max(run.seconds, 1e-9)
    finite = [(s, v) for s, v in zip(run.at_s, run.values, strict=True) if math.isfinite(v)]
    if run.end in (SeekEnd.DIVERGED, SeekEnd.FAILED) or not finite:
        return ceiling
    lag = lag_behind(rule, *zip(*finite, strict=True))
    if lag is not None:
        return min(max(floor, lag * rule.best_at_s[-1]), ceiling)
    return min(max(floor, _extended(finite, rule.target)), ceiling)


def _extended(points: Sequence[tuple[float, float]], target: float) -> float:
    """Return when a line through the last half, over the log of time, reaches the target."""
    (first_s, first), (last_s, last) = points[len(points) // 2 - (len(points) > 1)], points[-1]
    if last_s <= first_s or first_s <= 0 or (target - last) * (last - first) <= 0:
        return math.inf  # it stands still, or goes the other way
    slope = (last - first) / math.log(last_s / first_s)
    return last_s * math.exp(min((target - last) / slope, 50.0))


def rule_for(
    runs: Sequence[SeekRun],
    times: Mapping[int, float],
    *,
    limit_s: float,
    target: float,
    down: bool,
) -> StopRule:
    """Return the rule for a run that explores.

    Args:
        runs: all that are there.
        times: geometric mean of the times to the target of each candidate that reached it [s].
        limit_s: what is left of the budget [s].
        target: the quality that ends a run.
        down: smaller values are better.
    """
    if not times:
        return StopRule(target=target, is_better_down=down, limit_s=limit_s, is_limit_budget=True)
    best = min(times, key=lambda one: (times[one], one))
    # Of several runs of the best candidate, the slowest one that reached: no run is ended that is
    # only unlucky beside a lucky one.
    curve = max(
        (run for run in runs if run.candidate == best and run.time_to_target_s is not None),
        key=lambda run: (run.time_to_target_s or 0.0, run.number),
    )
    most = SLACK * max(times[best], curve.time_to_target_s or 0.0)
    return StopRule(
        target=target,
        is_better_down=down,
        limit_s=min(most, limit_s),
        is_limit_budget=limit_s < most,
        best_at_s=curve.at_s,
        best_values=curve.values,
    )
