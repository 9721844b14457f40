"""Forecasts the peak of a step whose batch is larger than all so far.

In: the peaks of followed updates with their sizes, and the parts of one of them. Out: a
`PeakForecast`. What is held is a constant, a part that grows with the elements of a batch, and one
that grows with the square of a row; none of them shrinks. So the peak of a larger step lies between
what the elements alone and the squares alone would make of two followed peaks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import sqrt

from steptime.measure.fold.rank_fold import FoldedRank
from steptime.measure.memory.run_peak import FORMS, MIN_FIT, kind_of, peaks_seen
from steptime.measure.values.model.anatomy import WITH_BATCH, Anatomy, Instant, MemoryTimeline
from steptime.measure.values.model.longest import PeakForecast
from steptime.measure.work.work_fit import (
    ELEMENTS,
    LARGEST,
    NEAR_ERROR,
    ROWS,
    TERMS,
    Update,
    find_fit,
)

SQUARES = TERMS["squares"]

APART = 1.1
"""Two followed updates say how a peak grows if one has a tenth more elements."""

MARGIN = 0.02
"""What is not seen even where a sum is exact: moments between the calls that are followed."""

Seen = Sequence[tuple[Update, int]]


def forecast_peak(
    rank: FoldedRank,
    anatomy: Anatomy,
    *,
    elements: float,
    rows: float,
    kept: Sequence[int] = (),
) -> PeakForecast | None:
    """Return the peak of a step with a larger batch; None where no step was followed.

    Args:
        rank: its updates, those that were followed among them.
        anatomy: the parts of a followed step.
        elements: elements of the larger batch over those of the largest one so far.
        rows: rows of the larger batch over those of the largest one so far.
        kept: what the graph kept for the backward of the first update, and of the followed one.
    """
    seen = peaks_seen(rank.steps.signals.counts)
    sizes = rank.steps.sizes
    updates = list(zip(sizes.optimizers, *sizes.columns, strict=True)) if sizes.columns else []
    largest = max([*updates, *(update for update, _ in seen)], key=_largest, default=None)
    if largest is None or not seen:
        return None
    wanted = enlarge(largest, elements=elements, rows=rows)
    squares = None
    if len(kept) == 2 and updates:
        squares = share_of_squares((updates[0], kept[0]), (seen[0][0], kept[1]))
    alike = [(update, peak) for update, peak in seen if kind_of(update) == kind_of(largest)]
    return (
        _fitted(alike, wanted)
        or between(alike, wanted, staying=_staying(anatomy.timeline))
        or by_parts(anatomy.timeline, seen[0][0], wanted, squares=squares)
    )


def _largest(update: Update) -> float:
    return update[LARGEST]


def enlarge(update: Update, *, elements: float, rows: float) -> Update:
    """Return an update whose largest call is so many times larger, with so many times the rows."""
    found = list(update)
    largest, all_elements = update[LARGEST], max(1.0, update[ELEMENTS])
    share = largest / all_elements
    rows_of_call = max(1.0, update[ROWS] * share)
    square = largest**2 / rows_of_call
    found[ROWS] += rows_of_call * (rows - 1)
    found[ELEMENTS] += largest * (elements - 1)
    found[SQUARES] += square * (elements**2 / rows - 1)
    found[LARGEST] *= elements
    return tuple(found)


def _fitted(alike: Seen, wanted: Update) -> PeakForecast | None:
    """Return the peak by a sum of sizes, where one gives the followed peaks nearly exactly."""
    known = [(update, (float(peak), 0.0, 0.0)) for update, peak in dict(alike).items()]
    fit = find_fit(known, forms=FORMS) if len(known) >= MIN_FIT else None
    if fit is None or fit.error_fraction > NEAR_ERROR:
        return None
    estimate, ratio = sum(fit.passes(wanted)), wanted[LARGEST] / max(_largest(k) for k, _ in known)
    if estimate < max(peak for _, peak in alike):
        return None
    error = MARGIN + fit.error_fraction * max(1.0, ratio)
    return _forecast(estimate * (1 - error), estimate, estimate * (1 + error), "fitted")


def between(alike: Seen, wanted: Update, *, staying: int | None) -> PeakForecast | None:
    """Return the peak between what elements alone and squares alone make of two others.

    With what stays from step to step, the two say how much goes with elements, and with squares.
    """
    if not alike:
        return None
    (small, low_peak), (large, high_peak) = (
        min(alike, key=lambda one: one[0][ELEMENTS]),
        max(alike, key=lambda one: one[0][ELEMENTS]),
    )
    if large[ELEMENTS] < APART * small[ELEMENTS] or high_peak <= low_peak:
        return None
    found = []
    for place in (ELEMENTS, SQUARES):
        if large[place] > small[place]:
            slope = (high_peak - low_peak) / (large[place] - small[place])
            found.append(high_peak + slope * max(0.0, wanted[place] - large[place]))
    bounds = _of_bounds(found, "between")
    if staying is None:
        return bounds
    guess = _solve((small, low_peak - staying), (large, high_peak - staying), wanted)
    estimate = bounds.estimate if guess is None else round(guess + staying)
    return replace(bounds, estimate=min(max(estimate, bounds.low), bounds.high))


def _staying(timeline: MemoryTimeline | None) -> int | None:
    """Return what stays from step to step, as it is at the peak of the followed step."""
    if timeline is None:
        return None
    return sum(size for name, size in timeline.peak.by_part.items() if name not in WITH_BATCH)


def _solve(small: tuple[Update, int], large: tuple[Update, int], wanted: Update) -> float | None:
    """Return the value of the sum of elements and squares that goes through two points."""
    (a, a_held), (b, b_held) = small, large
    by = a[ELEMENTS] * b[SQUARES] - b[ELEMENTS] * a[SQUARES]
    if not by:
        return None
    element = (a_held * b[SQUARES] - b_held * a[SQUARES]) / by
    square = (a[ELEMENTS] * b_held - b[ELEMENTS] * a_held) / by
    return element * wanted[ELEMENTS] + square * wanted[SQUARES]


def share_of_squares(first: tuple[Update, int], second: tuple[Update, int]) -> float | None:
    """Return how much of what the second update kept goes with the square of its rows.

    What a graph keeps is a sum of elements and squares, so two updates of different sizes tell.
    """
    update, held = second
    without = _solve(first, second, (*update[:SQUARES], 0, *update[SQUARES + 1 :]))
    if not held or without is None:
        return None
    return min(1.0, max(0.0, 1 - without / held))


def by_parts(
    timeline: MemoryTimeline | None,
    followed: Update,
    wanted: Update,
    *,
    squares: float | None = None,
) -> PeakForecast | None:
    """Return the peak if what grows with the batch grows with its elements, or with squares.

    `squares` is how much of it goes with squares, if that is known.
    """
    if timeline is None:
        return None
    instants = (*timeline.instants, timeline.peak)

    def peak(ratio: float) -> float:
        return max(one.total + (ratio - 1) * _growing(one) for one in instants)

    by_elements, by_squares = (
        wanted[place] / max(1.0, followed[place]) for place in (ELEMENTS, SQUARES)
    )
    bounds = _of_bounds([peak(by_elements), peak(by_squares)], "parts")
    if squares is None:
        return bounds
    guess = round(peak((1 - squares) * by_elements + squares * by_squares))
    return replace(bounds, estimate=min(max(guess, bounds.low), bounds.high))


def _growing(instant: Instant) -> int:
    return sum(instant.by_part.get(name, 0) for name in WITH_BATCH)


def _of_bounds(bounds: Sequence[float], how: str) -> PeakForecast:
    low, high = min(bounds), max(bounds)
    return _forecast(low, sqrt(low * high), high, how)


def _forecast(low: float, estimate: float, high: float, how: str) -> PeakForecast:
    return PeakForecast(low=round(low), estimate=round(estimate), high=round(high), how=how)
