"""Finds where a series of step times changes and stays so, despite outliers and dependence.

In: values in order of time. Out: the place of each lasting change. `diagnose.shifts.lasting_shifts`
says what changed with it. docs/explanation/diagnosis.md has the reasons, and
`benchmarks/run/shifts.py` the rate of false alarms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from steptime.core.interval import Interval
from steptime.core.stats import (
    effective_size,
    lag1_autocorrelation,
    median,
    median_interval,
    winsorize,
)

_Center = Callable[[Sequence[float]], Interval]

MAX_VALUES = 200
"""More values become medians of neighbors first: the cost of the test grows with the square."""

MIN_VALUES = 24
"""Fewer values cannot hold two sides that are each longer than a passing disturbance."""

MIN_SIDE_FRACTION = 0.15
"""Least share of the values on either side of a change: near an end, chance alone finds one."""

MIN_SIDE = 10
"""Fewest values on either side: the median's interval needs as many."""

CRITICAL = 4.0
"""Limit of the test's statistic; docs/explanation/diagnosis.md says how often noise passes it."""

MAX_DEPENDENCE = 0.97
"""Cap of the neighbors' correlation: beyond it, 200 values say less than three independent ones."""

MIN_RATIO = 1.10
"""Least change that matters (`INFO_FRACTION`); the whole interval must lie beyond it."""

TRIMMED_FRACTION = 0.2
"""Share of the values at either end that the mean of the middle leaves out."""

STAYS = 0.3
"""Each third of a side lies within so much of the change from its center: a slope does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePoint:
    """A change: from `index` on the values are about `after`, and until then about `before`.

    Both are medians, or means without the outer fifths; `ratio` is after over before.
    """

    index: int
    before: float
    after: float
    ratio: Interval


def find_changes(values: Sequence[float], *, max_changes: int = 4) -> tuple[ChangePoint, ...]:
    """Return the lasting changes in a series, in order.

    It finds the largest first, then those on either side of it. Intervals use the values between
    two neighboring changes.

    Args:
        values: step times, above zero, in order of time.
        max_changes: the search ends at so many.
    """
    logs = [math.log(value) for value in values]
    size = max(1, math.ceil(len(logs) / MAX_VALUES))
    whole = len(logs) // size * size
    blocks = [median(logs[start : start + size]) for start in range(0, whole, size)]
    places: list[int] = []
    pending = [(0, len(blocks))]
    while pending and len(places) < max_changes:
        begin, end = pending.pop(0)
        place = find_one(blocks[begin:end])
        if place is not None:
            places.append(begin + place)
            pending += [(begin, begin + place), (begin + place, end)]
    return _keep_lasting(logs, sorted(_refine(logs, place * size, size) for place in places))


def _keep_lasting(logs: Sequence[float], places: Sequence[int]) -> tuple[ChangePoint, ...]:
    """Return the changes at these places, without those that do not stay or are small, in turn."""
    edges = [0, *places, len(logs)]
    while True:
        pieces = [edges[i : i + 3] for i in range(len(edges) - 2)]
        found = [_describe(logs, piece) for piece in pieces]
        changes = tuple(change for change in found if change is not None)
        if len(changes) == len(found):
            return changes
        edges.pop(1 + found.index(None))


def find_one(values: Sequence[float]) -> int | None:
    """Return a change in a series that may have several; None if there is none.

    To a test for one change, two of them resemble dependence, so it tests each two thirds too.
    """
    place = find_change(values)
    if place is not None:
        return place
    third = len(values) // 3
    place = find_change(values[: 2 * third])
    if place is not None:
        return place
    place = find_change(values[third:])
    return None if place is None else third + place


def find_change(values: Sequence[float]) -> int | None:
    """Return the index of the first value after a series' one lasting change; None without one."""
    if len(values) < MIN_VALUES:
        return None
    side = max(MIN_SIDE, math.ceil(MIN_SIDE_FRACTION * len(values)))
    place, difference = largest_difference(values, side)
    if difference < CRITICAL:
        return None
    left, right = values[:place], values[place:]
    rest = [*(v - median(left) for v in left), *(v - median(right) for v in right)]
    if difference * math.sqrt(independent_fraction(rest)) < CRITICAL:
        return None
    return place


def rank_values(values: Sequence[float]) -> list[float]:
    """Return the rank of each value from 1 up; equal values share their mean rank."""
    order = sorted(range(len(values)), key=lambda i: values[i])
    ranks = [0.0] * len(values)
    start = 0
    while start < len(order):
        end = start
        while end < len(order) and values[order[end]] == values[order[start]]:
            end += 1
        for i in order[start:end]:
            ranks[i] = (start + 1 + end) / 2
        start = end
    return ranks


def largest_difference(values: Sequence[float], side: int) -> tuple[int, float]:
    """Return where the ranks of two sides differ most, and by how many standard deviations.

    The deviation is that of independent values without a change.

    Args:
        values: at least twice as many as `side`.
        side: fewest values on either side.

    Source: Pettitt, Applied Statistics 28 (1979).
    """
    n = len(values)
    sums = [0.0, *accumulate(rank_values(values))]

    def difference(k: int) -> float:
        return abs(sums[k] - k * (n + 1) / 2) / math.sqrt(k * (n - k) * (n + 1) / 12)

    place = max(range(side, n - side + 1), key=difference)
    return place, difference(place)


def independent_fraction(rest: Sequence[float]) -> float:
    """Return the fraction of the values that, if independent, would say as much.

    It works as in `stats.effective_size`, with the correlation corrected for its bias: the two
    medians were subtracted, each from half of the values.

    Args:
        rest: values minus the median of their side.

    Source: Marriott and Pope, Biometrika 41 (1954), for the bias.
    """
    r = max(0.0, lag1_autocorrelation(winsorize(rest)))
    r = min(MAX_DEPENDENCE, r + 2 * (1 + 3 * r) / len(rest))
    return (1 - r) / (1 + r)


def _stays(left: Sequence[float], right: Sequence[float], center: _Center) -> bool:
    """Return whether each third of a side is like the side: neither a slope nor a short episode."""
    before, after = center(left).estimate, center(right).estimate
    limit = STAYS * abs(after - before)
    pairs = ((left, before), (right, after))
    return all(
        abs(center(third).estimate - m) <= limit for side, m in pairs for third in _thirds(side)
    )


def middle_mean(values: Sequence[float]) -> Interval:
    """Return the mean without the outer fifths, in place of a median, with its interval.

    Source: Tukey and McLaughlin, Sankhya A 25 (1963).
    """
    n, inside = len(values), 1 - 2 * TRIMMED_FRACTION
    num_outer = int(TRIMMED_FRACTION * n)
    from statistics import NormalDist, fmean, stdev  # 10 ms, which few runs need

    mean = fmean(sorted(values)[num_outer : n - num_outer])
    error = stdev(winsorize(values, fraction=TRIMMED_FRACTION)) / (
        inside * math.sqrt(effective_size(values))
    )
    half = NormalDist().inv_cdf(0.975) * error
    return Interval(estimate=mean, low=mean - half, high=mean + half, n=n)


def _thirds(values: Sequence[float]) -> list[Sequence[float]]:
    size = len(values) // 3
    return [values[:size], values[size:-size], values[-size:]]


def _refine(logs: Sequence[float], place: int, size: int) -> int:
    """Return the place among the values themselves, near the block where it was found."""
    begin, end = max(1, place - 2 * size), min(len(logs) - 1, place + 2 * size)
    if size == 1 or begin >= end:
        return place
    before, after = median(logs[:place]), median(logs[place:])
    near = logs[begin:end]

    def cost(k: int) -> float:
        left = math.fsum(abs(value - before) for value in near[:k])
        return left + math.fsum(abs(value - after) for value in near[k:])

    return begin + min(range(len(near) + 1), key=cost)


def _describe(logs: Sequence[float], edges: Sequence[int]) -> ChangePoint | None:
    """Return the change in the middle of three edges; None if it does not stay, or may be small.

    Where a neighbor sometimes takes the core, steps have two lengths, and the median jumps from one
    to the other by chance. Then the mean of the middle may still show the change.
    """
    begin, middle, end = edges
    left, right = logs[begin:middle], logs[middle:end]
    for center in (median_interval, middle_mean):
        if _stays(left, right, center):
            change = _between(center(left), center(right), middle)
            if change.ratio.low >= MIN_RATIO or change.ratio.high <= 1 / MIN_RATIO:
                return change
    return None


def _between(before: Interval, after: Interval, index: int) -> ChangePoint:
    """Return the change from one center of logs to another.

    The interval of the difference combines the intervals of the two.

    Source: Zou and Donner, Statistics in Medicine 27 (2008).
    """
    step = after.estimate - before.estimate
    low = step - math.hypot(after.estimate - after.low, before.high - before.estimate)
    high = step + math.hypot(after.high - after.estimate, before.estimate - before.low)
    return ChangePoint(
        index=index,
        before=math.exp(before.estimate),
        after=math.exp(after.estimate),
        ratio=Interval(
            estimate=math.exp(step),
            low=math.exp(low),
            high=math.exp(high),
            n=before.n + after.n,
        ),
    )
