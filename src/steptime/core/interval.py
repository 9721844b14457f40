"""An estimate with its interval: the one value for every number that was measured with noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

# The 97.5 % points of Student's t for 1 to 30 degrees of freedom.
# Source: Fisher and Yates, Statistical Tables (1963), table III.
_T = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """An estimate, its 95 % interval, and the number of values behind it.

    The field that holds it says what is estimated, and in which unit: the median step time [s], a
    speedup, a slope, the rate of a ceiling. All four parts are always known; where nothing was
    observed, the field itself is None.

    Attributes:
        estimate: the number that was found, usually a median.
        low: the lower end of the interval.
        high: the upper end.
        n: how many values, rounds or pairs the estimate is made from.
    """

    estimate: float
    low: float
    high: float
    n: int


def t_point(degrees: int) -> float:
    """Return the 97.5 % point of Student's t; above 30 degrees within 0.1 % of the truth."""
    return _T[degrees - 1] if degrees <= len(_T) else 1.96 + 2.46 / degrees


def mean_of(values: Sequence[float]) -> Interval:
    """Return the mean of two values or more that are nearly independent."""
    mean, n = fmean(values), len(values)
    reach = t_point(n - 1) * stdev(values) / math.sqrt(n)
    return Interval(estimate=mean, low=mean - reach, high=mean + reach, n=n)
