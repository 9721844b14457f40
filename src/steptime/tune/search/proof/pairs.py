"""Statistics of paired log ratios: what a comparison says, and how many pairs it takes.

In: log(reference time / candidate time), one value a pair, in order of time. Out: medians with
distribution-free intervals, and what they mean given the study's noise floor. The formulas and
their sources are in docs/explanation/how-we-tune.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum

from steptime.core.interval import Interval
from steptime.core.stats import ERROR, median, median_interval, values_for_interval

MIN_PAIRS = 6
"""Fewest pairs with a distribution-free 95 % interval of their median (1 - 2 / 2**6)."""

MIN_FLOOR = 0.01
"""The noise floor at least: on a shared machine, effects of 1 to 2 % were never found reliably."""


class Worth(Enum):
    """What an interval says of a candidate, given the noise floor."""

    GAIN = "gain"
    """The whole interval lies above the noise."""
    SLOWER = "slower"
    """The whole interval lies below no change."""
    NOTHING = "no_gain"
    """The whole interval lies below the noise."""
    UNCLEAR = "undecided"
    """It reaches from below the noise to above it."""


def interval(log_ratios: Sequence[float], *, error: float = ERROR) -> Interval | None:
    """Median of the log ratios with its interval; None where they are too few to carry one.

    Args:
        log_ratios: in order of time.
        error: how often the interval may miss the true median.
    """
    finite = [value for value in log_ratios if math.isfinite(value)]
    if len(finite) < values_for_interval(error):
        return None
    return median_interval(finite, error=error)


def middle(log_ratios: Sequence[float]) -> float | None:
    """Median of the log ratios, however few; it ranks, and nothing is claimed from it."""
    finite = [value for value in log_ratios if math.isfinite(value)]
    return median(finite) if finite else None


def to_speedup(found: Interval) -> Interval:
    """The interval of log ratios as speedups."""
    return Interval(
        estimate=math.exp(found.estimate),
        low=math.exp(found.low),
        high=math.exp(found.high),
        n=found.n,
    )


def chain(first: Interval | None, then: Interval) -> Interval:
    """A log speedup on top of another: medians add, half widths as those of independent errors.

    It only shows where the search is; what a study claims is measured as a whole.
    """
    if first is None:
        return then
    middle = first.estimate + then.estimate
    reach = math.hypot(half_width(first), half_width(then))
    return Interval(
        estimate=middle, low=middle - reach, high=middle + reach, n=min(first.n, then.n)
    )


def inverse(found: Interval) -> Interval:
    """The same comparison the other way around, of log ratios."""
    return Interval(estimate=-found.estimate, low=-found.high, high=-found.low, n=found.n)


def half_width(found: Interval) -> float:
    """Half of the interval's width, of log ratios."""
    return (found.high - found.low) / 2


def floor_of(same: Interval) -> float:
    """The noise floor: how far an A/A interval reaches from no change, as a fraction.

    That is at least the interval's half width, and more where its middle is off: a lever must do
    more to the comparison than nothing at all does.
    """
    return max(MIN_FLOOR, math.expm1(max(abs(same.low), abs(same.high))))


def bias_of(same: Interval) -> float:
    """What an A/A shows for certain where nothing differs, as a fraction: its floor without width.

    A few rounds leave its interval wide, which says nothing of a candidate: that has its own.
    """
    is_certain = same.low > 0 or same.high < 0
    return max(MIN_FLOOR, math.expm1(min(abs(same.low), abs(same.high))) if is_certain else 0.0)


def worth(found: Interval, floor: float, *, bias: float) -> Worth:
    """What the interval says of a candidate.

    Args:
        found: its log speedup.
        floor: of the noise; what lies below it is no gain for certain.
        bias: of the comparison; what lies above it is a gain that is worth a proof.
    """
    if found.low > math.log1p(bias):
        return Worth.GAIN
    if found.high < 0:
        return Worth.SLOWER
    return Worth.NOTHING if found.high <= math.log1p(floor) else Worth.UNCLEAR


def pairs_for(found: Interval, wanted: float) -> int:
    """How many pairs make the interval's half width `wanted`: it shrinks as their square root.

    Args:
        found: what some pairs of the same kind gave.
        wanted: half width of log ratios, above zero.
    """
    return math.ceil(found.n * (half_width(found) / wanted) ** 2)
