"""Estimates how much equal runs differ, and the interval of a difference that follows from it.

In: one value per run, such as the logarithm of its step time. Out: a `Pool` of squared deviations,
and an `Estimate`. Steps inside a run depend on each other and on the state of the machine, so a run
is one value here, however many steps it has. docs/explanation/how-we-compare.md has the rules, and
benchmarks/verify/compare_runs.py counts how often they err.
"""

from __future__ import annotations

import itertools
import math
import struct
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev

from steptime.compare.values import Estimate
from steptime.core.interval import t_point

Values = Sequence[float]

MIN_SPREAD = 0.005
"""Least standard deviation of log step times: code and memory lie elsewhere in each process, and a
few runs may agree better than that by chance."""

MIN_DEGREES_SINGLE = 14
"""With one run on a side: fewer than 15 repeats seldom show what happens to one run in ten."""

SINGLE_QUANTILE = 0.95
SINGLE_FACTOR = 1.25
"""With one run on a side a difference counts beyond 1.25 times the bound that holds 95 % of the
differences between two repeats. Runs are not normal draws: most agree to a percent, and some are
slower or have another speed. The mean of several runs evens that out; a single run does not. The
factor covers what so few repeats do not show; benchmarks/verify/compare_runs.py counts the errors
that remain for nine shapes of noise."""

MIN_DEGREES = 3
"""Two runs against two have two degrees of freedom. Where equal runs have two speeds, each side
agrees with itself and the sides differ in one case of eight, however far apart the speeds are. A
fifth run helps; no factor does."""

MIN_PAIRS = 4
"""With fewer pairs an interval is wider than most differences that are looked for."""

MIN_OWN_DEGREES = 4
"""Three runs on each side are enough: stored runs add little, and may come from an odd day."""

MAX_RUNS = 50
"""More runs per side are rarely made by hand."""

MAX_STORED_DEGREES = 30
"""Stored runs weigh no more than this many runs, since the machine changes over a month."""

MAX_WIDER = 4.0
"""Where the runs' own variance is this many times that of stored runs, only their own counts: the
machine has changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gaps:
    """Absolute differences between values: those between any two of a group, and listed ones.

    Between two of a group they are not listed, for their number grows with the square of the runs.
    """

    groups: tuple[Values, ...] = ()
    listed: Values = ()

    def __len__(self) -> int:
        return len(self.listed) + sum(len(g) * (len(g) - 1) // 2 for g in self.groups)

    def add(self, other: Gaps) -> Gaps:
        """Return the two together."""
        return Gaps(groups=self.groups + other.groups, listed=(*self.listed, *other.listed))

    def nth_smallest(self, rank: int) -> float:
        """Return the gap of this rank, from 1: the least value that no fewer gaps are up to.

        It halves the range of possible values until one is left, so the result is one of the gaps,
        and the same as if all had been sorted. Floats that are not negative are in the order of
        their bits.
        """
        ordered, listed = [sorted(group) for group in self.groups], sorted(self.listed)
        largest = max([*(group[-1] - group[0] for group in ordered if group), *listed[-1:]])
        (bits,) = struct.unpack("<q", struct.pack("<d", largest))
        low, high = -1, int(bits)
        while high - low > 1:
            middle = (low + high) // 2
            bound = _float_of(middle)
            num = bisect_right(listed, bound) + sum(_num_within(g, bound) for g in ordered)
            low, high = (low, middle) if num >= rank else (middle, high)
        return _float_of(high)


def _num_within(ordered: Values, bound: float) -> int:
    """Return how many pairs of values lie at most so far apart."""
    num = first = 0
    for place, value in enumerate(ordered):
        while value - ordered[first] > bound:
            first += 1
        num += place - first
    return num


def _float_of(bits: int) -> float:
    (value,) = struct.unpack("<d", struct.pack("<q", bits))
    return float(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Squared deviations of values from the means of their groups, and degrees of freedom.

    `gaps` are the absolute differences between any two values of a group.
    """

    squares: float = 0.0
    degrees: int = 0
    gaps: Gaps = Gaps()

    @property
    def variance(self) -> float | None:
        """Return the variance of one value; None where nothing is known of it."""
        return self.squares / self.degrees if self.degrees else None

    def add(self, other: Pool) -> Pool:
        """Return the two pools together."""
        return Pool(
            squares=self.squares + other.squares,
            degrees=self.degrees + other.degrees,
            gaps=self.gaps.add(other.gaps),
        )


def pool(groups: Sequence[Values]) -> Pool:
    """Return the deviations of values within groups; the runs of each group are alike."""
    squares, degrees = 0.0, 0
    for values in groups:
        mean = fmean(values)
        squares += math.fsum((value - mean) ** 2 for value in values)
        degrees += max(0, len(values) - 1)
    return Pool(squares=squares, degrees=degrees, gaps=Gaps(groups=tuple(map(tuple, groups))))


def pool_neighbors(values: Values) -> Pool:
    """Return the deviations of values from the next one in time, where some have other code.

    A change from one level to another counts once, not in every run.

    Source: von Neumann, Annals of Mathematical Statistics 12 (1941); two thirds of the degrees of
        freedom remain.
    """
    gaps = tuple(abs(b - a) for a, b in itertools.pairwise(values))
    degrees = 2 * len(gaps) // 3
    variance = math.fsum(gap**2 / 2 for gap in gaps) / len(gaps) if gaps else 0.0
    return Pool(squares=variance * degrees, degrees=degrees, gaps=Gaps(listed=gaps))


def needs_stored(num_a: int, num_b: int) -> bool:
    """Return whether stored runs help to say how much equal runs differ."""
    return num_a + num_b - 2 < MIN_OWN_DEGREES or min(num_a, num_b) == 1


def runs_for(spread: float, *, wanted: float) -> int | None:
    """Return how many runs per side show a difference of `wanted` in four cases of five.

    The mean of the difference must lie the interval's half width and 0.84 standard errors above
    zero. None where that takes more than `MAX_RUNS`.
    """
    for num in range(3, MAX_RUNS + 1):
        error = spread * math.sqrt(2 / num)
        if (t_point(2 * num - 2) + 0.84) * error <= math.log1p(wanted):
            return num
    return None


def combine(own: Pool, stored: Pool) -> Pool:
    """Return own and stored deviations together, or the own ones alone if they are far noisier."""
    stored_variance, own_variance = stored.variance, own.variance
    if stored_variance is None:
        return own
    if own_variance is not None and own_variance > MAX_WIDER * stored_variance:
        return own
    degrees = min(stored.degrees, MAX_STORED_DEGREES)
    return own.add(replace(stored, squares=stored_variance * degrees, degrees=degrees))


def difference(a: Values, b: Values, *, noise: Pool, least: float = 0.0) -> Estimate:
    """Return the mean of B minus that of A, with its 95 % interval where `noise` allows one.

    Args:
        a, b: one value per run.
        noise: deviations of one value, from `combine`.
        least: the standard deviation is at least this.
    """
    value = fmean(b) - fmean(a)
    reach = reach_of(len(a), len(b), noise=noise, least=least)
    if reach is None:
        return Estimate(value=value)
    return Estimate(value=value, low=value - reach, high=value + reach)


def paired_difference(a: Values, b: Values, *, least: float = 0.0) -> Estimate:
    """Return the mean of B minus that of A, from pairs of runs that were made side by side.

    What the machine did to both of a pair is not in their difference. The interval is Student's,
    of the differences; there is none with fewer than `MIN_PAIRS`.

    Args:
        a, b: one value per run; the n-th of each are a pair.
        least: the standard deviation of one value is at least this.
    """
    gaps = [y - x for x, y in zip(a, b, strict=True)]
    value = fmean(gaps)
    if len(gaps) < MIN_PAIRS:
        return Estimate(value=value)
    error = max(stdev(gaps), math.sqrt(2) * least) / math.sqrt(len(gaps))
    reach = t_point(len(gaps) - 1) * error
    return Estimate(value=value, low=value - reach, high=value + reach)


def reach_of(num_a: int, num_b: int, *, noise: Pool, least: float = 0.0) -> float | None:
    """Return half of the interval's width; None where too little is known of the noise."""
    variance, per_run = noise.variance, math.sqrt(1 / num_a + 1 / num_b)
    if variance is None:
        return None
    if min(num_a, num_b) > 1:
        factor = t_point(noise.degrees) * per_run
        return None if noise.degrees < MIN_DEGREES else factor * max(math.sqrt(variance), least)
    if noise.degrees < MIN_DEGREES_SINGLE or not noise.gaps:
        return None
    usual = noise.gaps.nth_smallest(math.ceil(SINGLE_QUANTILE * len(noise.gaps)))
    return max(SINGLE_FACTOR * usual, 1.96 * least * per_run)
