"""Statistics of step times and memory: median and its interval, warm-up, period, trend.

In: plain sequences. Out: numbers and `Interval`. Everything here is distribution-free, because step
times are skewed, have far outliers, and depend on the step before. Other modules compare runs.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from itertools import pairwise
from typing import TypeVar

from steptime.core.interval import Interval

T = TypeVar("T")

ERROR = 0.05
"""How often an interval may miss what it is for, unless a rule states another."""

BATCH = 5
"""Values per batch in MSER-5; White (1997) chose five to smooth without hiding a short warm-up."""

MIN_BATCHES_LEFT = 3
"""With two batches left, chance cuts a fifth of twenty equal steps on average; with three, 1/12."""

WINSORIZED_FRACTION = 0.05
"""Share pulled in at each end: one step in twenty may stall (collection, logging) by chance."""

BOUNDED_FRACTION = 0.01
"""Share pulled in at each end for a mean: if 1 % of the steps stall, the run is not slower."""

MAX_AUTOCORRELATION = 0.95
"""Cap of r: above it the estimate from one run is all noise, and n_eff would be under n / 39."""

MAX_PERIOD = 64
"""Longest period that is searched: accumulation over 64 micro-batches is the longest in use."""

MIN_REPEAT_FRACTION = 0.9
"""Share of steps that must repeat one period later: epochs end in the middle of a period."""

MIN_TREND_POINTS = 8
"""Fewer points give no useful interval: eight points have 28 slopes."""

MAX_TREND_POINTS = 200
"""The number of slopes grows with the square; sorting 19,900 of them takes a few milliseconds."""

MSER5_RULE = (
    "warm-up ends where the marginal standard error of what remains is smallest (MSER-5, "
    "White 1997; batches of 5 values winsorized at 5 %), within the first half; a change that goes "
    "on behind it at half its size is a trend, and no warm-up"
)
"""The rule of `warmup_length` in one sentence."""

MIN_GOING_ON = 0.5
"""Part of the change from before a warm-up to behind it: a line has two thirds or more."""

_Z = 1.959964  # the 97.5 % point of the normal distribution
_MAX_EXACT = (
    1000  # 2 ** -n must not underflow; above it the normal approximation is exact to a rank
)


def median(values: Sequence[float]) -> float:
    """Return the middle value, or the mean of the two middle ones.

    Raises:
        ValueError: there are no values.
    """
    if not values:
        raise ValueError("`values` must not be empty")
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(values) % 2 else (ordered[half - 1] + ordered[half]) / 2


def weighted_median(values: Sequence[float], weights: Sequence[float]) -> float:
    """Return the value with half of the weight on either side; equal weights give the median.

    Args:
        values: in any order.
        weights: one for each value, above zero.

    Raises:
        ValueError: there are no values.
    """
    if not values:
        raise ValueError("`values` must not be empty")
    order = sorted(range(len(values)), key=values.__getitem__)
    half, below = sum(weights) / 2, 0.0
    for index, place in enumerate(order[:-1]):
        below += weights[place]
        if below == half:
            return (values[place] + values[order[index + 1]]) / 2
        if below > half:
            return values[place]
    return values[order[-1]]


def median_interval(values: Sequence[float], *, error: float = ERROR) -> Interval:
    """Return the median with an interval between two order statistics, of 95 % by itself.

    The ranks are those of the binomial distribution for the effective sample size, scaled to
    the number of values. With fewer than six effective values no such interval exists; the range
    of the values takes its place, and covers less.

    Args:
        values: in order of time, because neighbors depend on each other.
        error: how often the interval may miss the true median.

    Raises:
        ValueError: there are no values.

    Source: Hahn and Meeker, Statistical Intervals (1991), section 5.2.
    """
    n = len(values)
    num_effective = effective_size(values)
    rank = _low_rank(num_effective, error / 2) * (n + 1) // (num_effective + 1)
    rank = max(1, rank)
    ordered = sorted(values)
    return Interval(estimate=median(values), low=ordered[rank - 1], high=ordered[n - rank], n=n)


def values_for_interval(error: float = ERROR) -> int:
    """Return how many independent values an interval needs at least, so that it misses so seldom.

    The widest one reaches from the least value to the largest: it misses in 2 of 2**n cases.
    """
    return math.ceil(1 - math.log2(error))


def _low_rank(n: int, tail: float = ERROR / 2) -> int:
    """Return the largest l with P(Binomial(n, 1/2) < l) at most `tail`; 0 if there is none."""
    if n > _MAX_EXACT:
        from statistics import NormalDist  # 10 ms, which few runs need

        return math.floor((n + NormalDist().inv_cdf(tail) * math.sqrt(n)) / 2)
    rank = 0
    probability = cumulative = 0.5**n
    while cumulative <= tail:
        rank += 1
        probability *= (n - rank + 1) / rank
        cumulative += probability
    return rank


def effective_size(values: Sequence[float]) -> int:
    """Return how many independent values would say as much: n (1 - r) / (1 + r), at least 1.

    r is the lag-1 autocorrelation of the winsorized values, between 0 and 0.95. Outliers would
    hide the dependence of all others (docs/explanation/how-we-measure.md has the coverage).

    Source: Zwiers and von Storch, Journal of Climate 8 (1995), for a process of first order.
    """
    r = min(max(lag1_autocorrelation(winsorize(values)), 0.0), MAX_AUTOCORRELATION)
    return max(1, math.floor(len(values) * (1 - r) / (1 + r)))


def lag1_autocorrelation(values: Sequence[float]) -> float:
    """Return the correlation of each value with the next; 0 where nothing varies.

    Source: Box and Jenkins, Time Series Analysis (1970), section 2.1.
    """
    if not values:
        return 0.0
    mean = math.fsum(values) / len(values)
    away = [value - mean for value in values]
    total = math.fsum(d * d for d in away)
    return math.fsum(a * b for a, b in pairwise(away)) / total if total > 0 else 0.0


def bounded_mean(values: Sequence[float]) -> float:
    """Return the mean, with the outermost hundredth at each end pulled in to the next value inside.

    Where kinds of steps take turns (every fourth one waits for data), the median does not show
    what the rarer kind costs; the mean does. What one step in a hundred does counts as chance.

    Raises:
        ValueError: there are no values.
    """
    if not values:
        raise ValueError("`values` must not be empty")
    return math.fsum(winsorize(values, fraction=BOUNDED_FRACTION)) / len(values)


def winsorize(values: Sequence[float], *, fraction: float = WINSORIZED_FRACTION) -> list[float]:
    """Return the values in their order, with the outer ones pulled in to the next one inside.

    It pulls in a `fraction` of them at each end, at least one. Fewer than three values stay as
    they are, since there is nothing inside.

    Source: Dixon, Annals of Mathematical Statistics 31 (1960).
    """
    num_outer = math.ceil(fraction * len(values))
    if len(values) < 3:
        return list(values)
    ordered = sorted(values)
    low, high = ordered[num_outer], ordered[-1 - num_outer]
    return [low if value < low else min(value, high) for value in values]


def warmup_length(values: Sequence[float]) -> int:
    """Return how many values to cut off at the front by the rule that `MSER5_RULE` states.

    It is a multiple of `BATCH`, at most half of the values, and 0 below twenty of them.

    Args:
        values: step times in order of time.

    Source: White, Simulation 69 (1997); White, Cobb and Spratt, Winter Simulation Conference
        (2000) for the batches of five and the limit to the first half.
    """
    smooth = winsorize(values)
    num_batches = len(values) // BATCH
    batches = [math.fsum(smooth[i * BATCH : (i + 1) * BATCH]) for i in range(num_batches)]
    best, best_error = 0, math.inf
    mean = squares = 0.0
    # It starts at the back, so that each candidate costs one addition (Welford 1962).
    for cut in range(num_batches - 1, -1, -1):
        count = num_batches - cut
        away = batches[cut] - mean
        mean += away / count
        squares += away * (batches[cut] - mean)
        error = squares / count**2
        is_allowed = 2 * cut <= num_batches and count >= MIN_BATCHES_LEFT
        if is_allowed and error <= best_error:
            best, best_error = cut, error
    return 0 if _goes_on(batches, best) else best * BATCH


def _goes_on(batches: Sequence[float], cut: int) -> bool:
    """Return whether the change from before a cut to behind it goes on there: a trend.

    Behind a warm-up, the two halves of what remains are alike.
    """
    middle = (cut + len(batches)) // 2
    if cut == 0:
        return False
    before, first, second = (
        math.fsum(part) / len(part)
        for part in (batches[:cut], batches[cut:middle], batches[middle:])
    )
    step, on = first - before, second - first
    return step * on > 0 and abs(on) >= MIN_GOING_ON * abs(step)


def find_period(kinds: Sequence[Hashable], *, max_period: int = MAX_PERIOD) -> int | None:
    """Return after how many steps the kinds of step repeat; 1 if all are alike, None if never.

    It is the smallest p for which at least nine in ten steps equal the one p later, with at least
    two full periods.

    Source: the match count over shifts is the autocorrelation of a symbolic sequence, as in
        Elfeky, Aref and Elmagarmid, IEEE Transactions on Knowledge and Data Engineering 17 (2005).
    """
    n = len(kinds)
    for period in range(1, min(max_period, n // 2) + 1):
        num_equal = sum(a == b for a, b in zip(kinds, kinds[period:], strict=False))
        if num_equal >= MIN_REPEAT_FRACTION * (n - period):
            return period
    return None


def trend(points: Sequence[tuple[float, float]]) -> Interval | None:
    """Return the median of the slopes of y over x between all pairs of points, and its interval.

    Outliers do not move it while they are fewer than 29 % of the points. The interval lies between
    two order statistics of the slopes. Its width is that of independent residuals, times the
    square root of points over effective points: without this factor it covers a slope of zero in
    only 50 % of series with a lag-1 autocorrelation of 0.8.

    Args:
        points: (x, y) in order of x; of more than 200 points, 200 are taken, evenly by number.

    Returns:
        The slope, with the number of points behind it; None below eight points, or where all
        points have the same x.

    Source: Sen, Journal of the American Statistical Association 63 (1968); Hamed and Rao, Journal
        of Hydrology 204 (1998) for the variance of dependent values.
    """
    points = thin(points, MAX_TREND_POINTS)
    slopes = sorted(
        (y_later - y) / (x_later - x)
        for index, (x, y) in enumerate(points)
        for x_later, y_later in points[index + 1 :]
        if x_later > x
    )
    n = len(points)
    if n < MIN_TREND_POINTS or not slopes:
        return None
    slope = median(slopes)
    num_effective = effective_size([y - slope * x for x, y in points])
    variance = n * (n - 1) * (2 * n + 5) / 18 * n / num_effective
    reach = _Z * math.sqrt(variance)
    low = max(0, math.floor((len(slopes) - reach) / 2) - 1)
    return Interval(estimate=slope, low=slopes[low], high=slopes[-1 - low], n=n)


def thin(values: Sequence[T], size: int) -> Sequence[T]:
    """Return at most `size` of the values, evenly by number, with the first and the last."""
    if len(values) <= size:
        return values
    return [values[i * (len(values) - 1) // (size - 1)] for i in range(size)]
