"""Makes one number of each run, in three ways, so that larger is better.

In: runs of both arms. Out: the final metric, the mean log loss over the last 75 %, the log of the
samples up to the target, and what a margin is in each of them. A run that diverged has the worst
value that was seen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from steptime.verify.convergence.statistics import mean
from steptime.verify.values.seed_runs import (
    REFERENCE,
    Margin,
    TrainingQuestion,
    TrainingRun,
    Unit,
)

LAST_EVALUATIONS = 2
AREA_FROM = 0.25
"""Of the training: what comes before is left out of the area."""

SLOPE_FROM = 0.75
"""Of the training: the slope at the end is that of the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """One number of each run, larger is better.

    Attributes:
        name: as in `SummaryDifference.name`.
        reference: of the runs of the reference, in their order.
        candidate: of the candidate's.
        margin: what does not matter in this unit; None where the reference does not say.
        num_censored: runs of the candidate that never reached the target, beyond those of the
            reference.
    """

    name: str
    reference: tuple[float, ...]
    candidate: tuple[float, ...]
    margin: float | None
    num_censored: int = 0


class Yardsticks:
    """What is read off the reference: its final metric, its slope at the end, the target.

    Args:
        reference: its runs; at least one has not diverged.
        question: what is asked.
        cut: runs of the reference with fewer steps, whose loss is the margin where that is in
            percent of training.
    """

    def __init__(
        self,
        reference: Sequence[TrainingRun],
        question: TrainingQuestion,
        cut: Sequence[TrainingRun] = (),
    ) -> None:
        well = [run for run in reference if not run.has_diverged]
        self.sign = -1.0 if question.is_better_down else 1.0
        self.final = mean([final_of(run) for run in well])
        self.total = max(run.points[-1] for run in well)
        self.slope = self.sign * mean([slope_of(run) for run in well])
        worst = min if self.sign > 0 else max
        finals = [final_of(run) for run in well]
        self.cut = [self.sign * final_of(run) for run in cut if not run.has_diverged]
        self._cut_fraction = question.margin.amount / 100 if self.cut else None
        self.margin = self._margin(question.margin)
        allowed = worst(finals) - self.sign * (self.margin or 0.0)
        self.target = allowed if question.target is None else question.target

    def _margin(self, margin: Margin) -> float | None:
        """Return the margin in the unit of the metric; None where nothing improves any more."""
        if self.cut:
            measured = self.sign * self.final - mean(self.cut)
            return measured if measured > 0 else None
        if margin.unit is Unit.METRIC:
            return margin.amount
        if margin.unit is Unit.PERCENT:
            return margin.amount / 100 * abs(self.final)
        return margin.amount / 100 * self.total * self.slope if self.slope > 0 else None

    @property
    def training_fraction(self) -> float | None:
        """Return the margin as a share of the reference's training."""
        if self._cut_fraction is not None:
            return self._cut_fraction
        if self.margin is None or self.slope <= 0:
            return None
        return self.margin / self.slope / self.total


def final_of(run: TrainingRun) -> float:
    """Return the mean of the last two evaluations."""
    return mean(run.values[-LAST_EVALUATIONS:])


def slope_of(run: TrainingRun) -> float:
    """Return the slope of the metric over the last quarter, by least squares [metric a point]."""
    pairs = list(zip(run.points, run.values, strict=True))
    since = run.points[0] + SLOPE_FROM * (run.points[-1] - run.points[0])
    last = [pair for pair in pairs if pair[0] >= since]
    last = last if len(last) > 1 else pairs[-2:]
    if len(last) < 2:
        return 0.0
    x, y = mean([pair[0] for pair in last]), mean([pair[1] for pair in last])
    across = math.fsum((a - x) ** 2 for a, _ in last)
    return math.fsum((a - x) * (b - y) for a, b in last) / across if across else 0.0


def area_of(run: TrainingRun, scale: Callable[[float], float]) -> float:
    """Return the mean of the scaled metric over the last 75 % of the training, by trapezoids."""
    begin = run.points[0] + AREA_FROM * (run.points[-1] - run.points[0])
    spots = [(at, scale(v)) for at, v in zip(run.points, run.values, strict=True)]
    kept = [spot for spot in spots if spot[0] >= begin]
    before = [spot for spot in spots if spot[0] < begin]
    if before and kept and kept[0][0] > begin:
        kept.insert(0, (begin, _between(before[-1], kept[0], begin)))
    if len(kept) < 2:
        return kept[-1][1]
    pieces = pairwise(kept)
    return math.fsum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in pieces) / (
        kept[-1][0] - kept[0][0]
    )


def _between(left: tuple[float, float], right: tuple[float, float], at: float) -> float:
    share = (at - left[0]) / (right[0] - left[0])
    return left[1] + share * (right[1] - left[1])


def crossing_of(run: TrainingRun, target: float, sign: float) -> float | None:
    """Return where the metric first reaches the target and still does at the next evaluation.

    Between two evaluations it is a line. At the last evaluation there is no next one to hold. None
    where it does not.
    """
    spots = list(zip(run.points, run.values, strict=True))
    for number, (at, value) in enumerate(spots):
        holds = number + 1 == len(spots) or sign * (spots[number + 1][1] - target) >= 0
        if sign * (value - target) >= 0 and holds:
            if number == 0 or spots[number - 1][1] == value:
                return at
            last = spots[number - 1]
            if sign * (last[1] - target) >= 0:
                return at
            share = (target - last[1]) / (value - last[1])
            return last[0] + share * (at - last[0])
    return None


def summarize(
    runs: Sequence[TrainingRun], question: TrainingQuestion, found: Yardsticks
) -> list[Summary]:
    """Return the three summaries of both arms; the final metric comes first."""
    return [
        _summary("final", runs, found, final_of, found.margin),
        _area(runs, found),
        *_to_target(runs, question, found),
    ]


def _summary(
    name: str,
    runs: Sequence[TrainingRun],
    found: Yardsticks,
    number: Callable[[TrainingRun], float],
    margin: float | None,
) -> Summary:
    """Return one number a run; those that diverged have the worst one of all."""
    values = {id(run): found.sign * number(run) for run in runs if not run.has_diverged}
    worst = min([*values.values(), *(found.sign * v for v in _beginnings(runs, number))])
    arms: dict[bool, list[float]] = {True: [], False: []}
    for run in runs:
        arms[run.arm == REFERENCE].append(values.get(id(run), worst))
    return Summary(
        name=name, reference=tuple(arms[True]), candidate=tuple(arms[False]), margin=margin
    )


def _beginnings(runs: Sequence[TrainingRun], number: Callable[[TrainingRun], float]) -> list[float]:
    """Return what a run would have that stayed where those began that diverged."""
    found = []
    for run in runs:
        if run.has_diverged and math.isfinite(run.values[0]):
            stayed = tuple(run.values[0] for _ in run.values)
            found.append(
                number(TrainingRun(arm=run.arm, seed=None, points=run.points, values=stayed))
            )
    return found


def _area(runs: Sequence[TrainingRun], found: Yardsticks) -> Summary:
    """Return the mean log loss; of the metric itself where that is not always above 0."""
    well = [run for run in runs if not run.has_diverged]
    is_positive = all(value > 0 for run in well for value in run.values)
    scale = math.log if is_positive else float
    margin = found.margin
    if is_positive and margin is not None:
        margin = margin / abs(found.final) if found.final else None
    return _summary("area", runs, found, lambda run: area_of(run, scale), margin)


def _to_target(
    runs: Sequence[TrainingRun], question: TrainingQuestion, found: Yardsticks
) -> list[Summary]:
    """Return the log of the samples up to the target; nothing where the reference misses it."""
    reached = {
        id(run): None if run.has_diverged else crossing_of(run, found.target, found.sign)
        for run in runs
    }
    arms: dict[bool, list[float | None]] = {True: [], False: []}
    for run in runs:
        at = reached[id(run)]
        arms[run.arm == REFERENCE].append(None if at is None or at <= 0 else -math.log(at))
    seen = [value for value in arms[True] if value is not None]
    if not seen:
        return []
    margin = None
    if found.training_fraction is not None:
        margin = math.log1p(found.training_fraction * found.total / math.exp(-mean(seen)))
    worst = min(value for arm in arms.values() for value in arm if value is not None)
    missed = [sum(value is None for value in arms[one]) for one in (True, False)]
    filled = [tuple(worst if v is None else v for v in arms[one]) for one in (True, False)]
    return [
        Summary(
            name="to_target",
            reference=filled[0],
            candidate=filled[1],
            margin=margin,
            num_censored=max(0, missed[1] - missed[0]),
        )
    ]
