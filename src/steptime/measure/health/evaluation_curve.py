"""Describes the losses of evaluations beside those of the training, without a judgement.

In: rows of evaluations, and the losses of updates. Out: an `EvaluationCurve`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from steptime.core.interval import Interval
from steptime.core.stats import median
from steptime.measure.values.model.training_health import EvaluationCurve
from steptime.record.health_rows import EvaluationRow
from steptime.record.rows import LossRow

NUM_LAST = 3
"""Evaluations at the end whose median is the level of the end: one alone may be strange."""

MIN_EVALUATIONS = 5
LEAST_UPDATES = 16
"""Updates before an evaluation, at least, whose losses are those of the training then."""

Z = 1.96
NORMAL_SCALE = 1.4826


def make_evaluations(
    rows: Sequence[EvaluationRow], losses: Sequence[LossRow]
) -> EvaluationCurve | None:
    """Return the curve of a run's evaluations; None if there are too few of them."""
    known = {row.number: row for row in rows if _is_finite(row.mean) and _is_finite(row.scatter)}
    ordered = [known[number] for number in sorted(known)]
    if len(ordered) < MIN_EVALUATIONS:
        return None
    means = [row.mean for row in ordered if row.mean is not None]
    before = means[:-NUM_LAST]
    place = min(range(len(before)), key=before.__getitem__)
    near = means[max(0, place - 1) : min(len(before), place + 2)]
    lowest, last = median(near), median(means[-NUM_LAST:])
    sigma = _scatter(ordered, means)
    # The lowest of many is low by chance, too: by some sqrt(2 ln k) deviations.
    chance = sigma * math.sqrt(2 * math.log(len(before) + 1) / len(near))
    half = Z * sigma * math.sqrt(1 / len(near) + 1 / NUM_LAST)
    rise = last - lowest
    then = _training(losses, ordered[place].number, ordered)
    now = _training(losses, ordered[-1].number, ordered)
    return EvaluationCurve(
        num=len(ordered),
        first=means[0],
        lowest=lowest,
        lowest_update=ordered[place].number,
        last=last,
        last_update=ordered[-1].number,
        num_above=_num_above(means, lowest),
        rise=Interval(estimate=rise, low=rise - half - chance, high=rise + half, n=len(means)),
        training_then=None if then is None else then[0],
        training_last=None if now is None else now[0],
        gap=_gap(means, ordered, last, now, losses, sigma),
    )


def _is_finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _scatter(rows: Sequence[EvaluationRow], means: Sequence[float]) -> float:
    """Return the deviation of one evaluation: by its batches, or from one to the next if larger.

    The latter is of second differences, which a slope leaves as they are.
    """
    own = [(row.scatter or 0.0) / math.sqrt(max(1, row.num)) for row in rows]
    steps = [b - a for a, b in pairwise(means)]
    bends = [(b - a) ** 2 for a, b in pairwise(steps)]
    return max(median(own), math.sqrt(math.fsum(bends) / len(bends) / 6))


def _num_above(means: Sequence[float], lowest: float) -> int:
    """Return how many evaluations at the end lie above the lowest level, without a break."""
    num = 0
    for mean in reversed(means):
        if mean <= lowest:
            break
        num += 1
    return num


def _training(
    losses: Sequence[LossRow], number: int, rows: Sequence[EvaluationRow]
) -> tuple[float, float] | None:
    """Return the level of the training's losses before an evaluation, and its deviation.

    Before the first update there is none: then it is that of the first updates.
    """
    number = max(number, LEAST_UPDATES)
    numbers = [row.number for row in rows]
    width = max(LEAST_UPDATES, round(median([b - a for a, b in pairwise(numbers)])))
    near = [
        row.loss
        for row in losses
        if row.loss is not None and number - width < row.number <= number and _is_finite(row.loss)
    ]
    if not near:
        return None
    level = median(near)
    sigma = NORMAL_SCALE * median([abs(loss - level) for loss in near])
    return level, sigma / math.sqrt(len(near))


def _gap(
    means: Sequence[float],
    rows: Sequence[EvaluationRow],
    last: float,
    now: tuple[float, float] | None,
    losses: Sequence[LossRow],
    sigma: float,
) -> Interval | None:
    """Return evaluation less training at the end; None where they are not on one scale.

    They are on one scale if they were alike at the first evaluation: a loss may be a sum there.
    """
    first = _training(losses, rows[0].number, rows)
    if now is None or first is None or not first[0] > 0 or not 0.5 <= means[0] / first[0] <= 2.0:
        return None
    gap, half = last - now[0], Z * math.hypot(sigma / math.sqrt(NUM_LAST), now[1])
    return Interval(estimate=gap, low=gap - half, high=gap + half, n=len(rows))
