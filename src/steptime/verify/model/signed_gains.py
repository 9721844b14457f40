"""Gains of a candidate over a reference, with their intervals and what more rows would decide.

Sources: McNemar, Psychometrika 12, 1947, for pairs of 0 and 1, whose standard error is that of the
difference of two correlated proportions; Welch, Biometrika 34, 1947, for unlike rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from steptime.core.interval import Interval
from steptime.verify.model.two_arms import Arms
from steptime.verify.values import Outcome

if TYPE_CHECKING:
    from steptime.verify.model.two_arms import Floats

LEVEL = 0.05
"""Of each one-sided test: intervals are two-sided with twice as much outside."""

_FEW = 25
"""Discordant pairs below which the exact test is shown."""


@dataclass(frozen=True, slots=True)
class SignedGain:
    """A gain with its standard error; `num` is the pairs, or the rows of both arms."""

    mean: float
    error: float
    num: int

    def interval(self) -> Interval:
        """Return the gain with its interval of 90 %."""
        reach = _quantile() * self.error
        low, high = self.mean - reach, self.mean + reach
        return Interval(estimate=self.mean, low=low, high=high, n=self.num)

    def p_not_worse(self, margin: float) -> float:
        """Return the probability of such a gain, were the true one minus the margin."""
        from scipy.stats import norm

        if self.error == 0:
            return 0.0 if self.mean > -margin else 1.0
        return float(norm.sf((self.mean + margin) / self.error))

    def num_needed(self, margin: float) -> int | None:
        """Return how many times as many rows decide, as rows; None where none would."""
        distance = abs(self.mean + margin)
        if distance == 0 or self.error == 0:
            return None
        return math.ceil(self.num * (_quantile() * self.error / distance) ** 2)


def _quantile() -> float:
    from scipy.stats import norm

    return float(norm.isf(LEVEL))


def judge(gain: SignedGain, margin: float) -> Outcome:
    """Return whether a gain is not worse by the margin or more."""
    found = gain.interval()
    if found.low > -margin:
        return Outcome.PASS
    return Outcome.FAIL if found.high < -margin else Outcome.INCONCLUSIVE


def gain_of(arms: Arms, *, sign: float) -> SignedGain:
    """Return the gain over all rows; `sign` is -1 where less of the metric is better."""
    a, b = arms.reference.scores, arms.candidate.scores
    if not arms.is_paired:
        return unpaired_gain(a, b, sign=sign)
    difference = sign * (b - a)
    return SignedGain(float(difference.mean()), _deviation(difference) / math.sqrt(len(a)), len(a))


def unpaired_gain(a: Floats, b: Floats, *, sign: float) -> SignedGain:
    """Return the gain of the rows of one arm over others."""
    error = math.hypot(_deviation(a) / math.sqrt(len(a)), _deviation(b) / math.sqrt(len(b)))
    return SignedGain(sign * float(b.mean() - a.mean()), error, len(a) + len(b))


def _deviation(values: Floats) -> float:
    """Return the standard deviation; of 0 and 1, that is the one of the proportion."""
    return float(values.std())


@dataclass(frozen=True, slots=True)
class Discordant:
    """Pairs of 0 and 1 in which the arms differ."""

    num_fixed: int
    num_broken: int
    p_exact: float | None


def discordant_of(arms: Arms, *, sign: float) -> Discordant | None:
    """Return the pairs that differ; None where rows are no pairs, or scores are not 0 and 1."""
    a, b = arms.reference.scores, arms.candidate.scores
    if not arms.is_paired or not (is_binary(a) and is_binary(b)):
        return None
    fixed, broken = int(((b - a) * sign > 0).sum()), int(((b - a) * sign < 0).sum())
    few = 0 < fixed + broken < _FEW
    if not few:
        return Discordant(fixed, broken, None)
    from scipy.stats import binomtest

    return Discordant(fixed, broken, float(binomtest(fixed, fixed + broken).pvalue))


def is_binary(values: Floats) -> bool:
    """Return whether all scores are 0 or 1."""
    return bool(((values == 0) | (values == 1)).all())
