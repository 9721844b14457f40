"""An estimate with its interval: the one value for every number that was measured with noise."""

from __future__ import annotations

from dataclasses import dataclass


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
