"""Gains of a candidate over a reference, with their intervals and what more rows would decide.

Sources: McNemar, Psychometrika 12, 1947, for pairs of 0 and 1, whose standard error is that of the
difference of two correlated proportions; Welch, Biometrika 34, 1947, for unlike rows; Liang,
Zeger, Biometrika 73, 1986, for groups; Satterthwaite, Biometrics 2, 1946, for degrees of freedom;
T. Tango, Stat. Med. 17, 1998, and R. G. Newcombe, the same, for few rows that differ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from steptime.core.interval import Interval
from steptime.verify.model.metrics import is_binary
from steptime.verify.model.two_arms import ArmRows, Arms
from steptime.verify.values import Outcome

if TYPE_CHECKING:
    from steptime.verify.model.two_arms import Codes, Floats

LEVEL = 0.05
"""Of each one-sided test: intervals are two-sided with twice as much outside."""

_FEW = 25
"""Discordant pairs below which the exact test is shown, and the normal distribution is left."""

_HALL = 0.65
"""(2 z^2 + 1) / (6 z), at the z of 5 %."""

_RARE = 5
"""Rows of either kind in one arm below which the same holds of unlike rows."""


Part: TypeAlias = tuple[float, float]
"""A standard error with its degrees of freedom."""


@dataclass(frozen=True, slots=True)
class SignedGain:
    """A gain with its standard error; `num` is the pairs, or the rows of both arms.

    Without degrees of freedom, as where an arm has one row, its error is not known.
    """

    mean: float
    error: float
    num: int
    freedom: float = math.inf

    def interval(self) -> Interval:
        """Return the gain with its interval of 90 %."""
        reach = self._quantile() * self.error if self.freedom else 0.0
        low, high = self.mean - reach, self.mean + reach
        return Interval(estimate=self.mean, low=low, high=high, n=self.num)

    def p_not_worse(self, margin: float) -> float:
        """Return the probability of such a gain, were the true one minus the margin."""
        from scipy.stats import t

        if self.error == 0 or not self.freedom:
            return 0.0 if self.mean > -margin and self.freedom else 1.0
        return float(t.sf((self.mean + margin) / self.error, self.freedom))

    def p_worse(self, margin: float) -> float:
        """Return the probability of such a loss, were the true gain minus the margin."""
        from scipy.stats import t

        if self.error == 0 or not self.freedom:
            return 0.0 if self.mean < -margin and self.freedom else 1.0
        return float(t.cdf((self.mean + margin) / self.error, self.freedom))

    def num_needed(self, margin: float) -> int | None:
        """Return how many times as many rows decide, as rows; None where none would."""
        distance = abs(self.mean + margin)
        if distance == 0 or self.error == 0 or not self.freedom:
            return None
        return math.ceil(self.num * (self._quantile() * self.error / distance) ** 2)

    def _quantile(self) -> float:
        from scipy.stats import t

        return float(t.isf(LEVEL, self.freedom))


def paired_gain(differences: Floats) -> SignedGain:
    """Return the mean of the differences (num_rows,) of pairs, with its error."""
    num = len(differences)
    return SignedGain(float(differences.mean()), float(differences.std()) / math.sqrt(num), num)


def rate_of(num_hit: int, num: int) -> Interval:
    """Return a rate with its bounds, each of them one-sided at 5 %.

    Source: C. J. Clopper, E. S. Pearson, Biometrika 26, 1934.
    """
    from scipy.stats import binomtest

    found = binomtest(num_hit, num).proportion_ci(1 - 2 * LEVEL)
    low, high = float(found.low), float(found.high)
    return Interval(estimate=num_hit / num, low=low, high=high, n=num)


def judge(gain: SignedGain, margin: float) -> Outcome:
    """Return whether a gain is not worse by the margin or more."""
    found = gain.interval()
    if not gain.freedom:
        return Outcome.INCONCLUSIVE
    if found.low > -margin:
        return Outcome.PASS
    return Outcome.FAIL if found.high < -margin else Outcome.INCONCLUSIVE


def gain_of(arms: Arms, *, sign: float, is_of_this_set: bool = False) -> SignedGain:
    """Return the gain over all rows, in the arms' mean over seeds.

    Args:
        arms: both arms.
        sign: -1 where less of the metric is better.
        is_of_this_set: leave out what other rows would change: other seeds alone may differ.
    """
    a, b = arms.reference, arms.candidate
    seen_a, seen_b = a.mean_scores(), b.mean_scores()
    parts = [*_of_seeds(a), *_of_seeds(b)]
    if is_of_this_set:
        pass
    elif arms.is_paired:
        parts.append(_of_rows(seen_b - seen_a, a.groups))
    else:
        parts += [_of_rows(seen_a, a.groups), _of_rows(seen_b, b.groups)]
    error = math.hypot(*(part for part, _ in parts))
    if max(len(a.scores), len(b.scores)) == 1:
        error = max(error, _error_of_few(seen_a, seen_b, arms))
    freedom = freedom_of(parts, error)
    num = a.num if arms.is_paired else a.num + b.num
    return SignedGain(sign * float(seen_b.mean() - seen_a.mean()), error, num, freedom)


def _of_rows(values: Floats, groups: Codes | None) -> Part:
    """Return what other rows, or other groups of them, would change of the mean."""
    import numpy as np

    if len(values) < 2:
        return 0.0, 0.0
    if groups is None and is_binary(np.abs(values)):  # that is the error of the proportion
        return float(values.std()) / math.sqrt(len(values)), math.inf
    if groups is None:
        error = float(values.std(ddof=1)) / math.sqrt(len(values))
        return error * _widening(values), len(values) - 1.0
    found, of_row = np.unique(groups, return_inverse=True)
    num = len(found)
    if num < 2:  # one group tells as much as one row
        return float(values.std()), 0.0
    sums = np.bincount(of_row.reshape(-1), weights=values - values.mean())
    return math.sqrt(float((sums**2).sum()) * num / (num - 1)) / len(values), num - 1.0


def _widening(values: Floats) -> float:
    """Return how many times as wide an interval must be for rare rows that are far off.

    Where rows are fewer than 25 times the squared skewness (W. G. Cochran, Sampling Techniques,
    1977, 2.15), by the first term of P. Hall, J. R. Stat. Soc. B 54, 1992, on the longer side.
    """
    import numpy as np

    apart = values - values.mean()
    spread = float(np.mean(apart**2))
    part = abs(float(np.mean(apart**3))) / spread**1.5 / math.sqrt(len(apart)) if spread else 0.0
    # The skewness of a handful of rows is chance.
    is_known = len(apart) >= _FEW and part > 1 / math.sqrt(_FEW)
    return 1 + _HALL * part if is_known else 1.0


def _error_of_few(a: Floats, b: Floats, arms: Arms) -> float:
    """Return the error that reaches as far as a score interval, where few 0 and 1 differ.

    Twenty rows without a difference are no proof that there is none; nor are they where the
    metric is another: then some row that was not seen may differ by as much as rows do.
    """
    import numpy as np
    from scipy.stats import norm

    span = 1.0
    if not (is_binary(a) and is_binary(b)):
        if not (arms.is_paired and np.array_equal(a, b)):
            return 0.0
        span = float(np.ptp(a))
    part_a, part_b = (  # rows of a group count as one
        1.0 if one.groups is None else len(np.unique(one.groups)) / one.num
        for one in (arms.reference, arms.candidate)
    )
    if arms.is_paired:
        won, lost = float((b > a).sum()) * part_a, float((b < a).sum()) * part_a
        if won + lost >= _FEW:
            return 0.0
        low, high = _paired_interval(won, lost, len(a) * part_a)
    else:
        hits, nums = (a.sum() * part_a, b.sum() * part_b), (len(a) * part_a, len(b) * part_b)
        if all(min(hit, num - hit) >= _RARE for hit, num in zip(hits, nums, strict=True)):
            return 0.0
        from statsmodels.stats.proportion import confint_proportions_2indep

        ends = (hits[1], nums[1], hits[0], nums[0])
        low, high = confint_proportions_2indep(*ends, method="newcomb", alpha=2 * LEVEL)
    mean = float(b.mean() - a.mean())
    return span * max(mean - float(low), float(high) - mean) / float(norm.isf(LEVEL))


def _paired_interval(won: float, lost: float, num: float) -> tuple[float, float]:
    """Return Tango's interval of (won - lost) / num."""
    from scipy.optimize import brentq
    from scipy.stats import norm

    limit, mean = float(norm.isf(LEVEL)), (won - lost) / num

    def score(gain: float) -> float:
        a, b = 2 * num, (2 * num - won + lost) * gain - won - lost
        c = -lost * gain * (1 - gain)
        rate = (math.sqrt(max(b * b - 4 * a * c, 0.0)) - b) / (2 * a)
        spread = num * (2 * rate + gain * (1 - gain))
        return (won - lost - num * gain) / math.sqrt(max(spread, 1e-12))

    edge = 1 - 1e-9
    low = brentq(lambda gain: score(gain) - limit, -edge, mean) if mean > -edge else -1.0
    high = brentq(lambda gain: score(gain) + limit, mean, edge) if mean < edge else 1.0
    return float(low), float(high)


def _of_seeds(arm: ArmRows) -> list[Part]:
    """Return what other trainings would change of the mean; nothing where there was one."""
    num = len(arm.scores)
    if num < 2:
        return []
    means = arm.scores.mean(axis=1)
    return [(float(means.std(ddof=1)) / math.sqrt(num), num - 1.0)]


def freedom_of(parts: Sequence[Part], error: float) -> float:
    """Return the degrees of freedom of an error that is made of parts."""
    if not all(freedom for _, freedom in parts):
        return 0.0
    loss = math.fsum(part**4 / freedom for part, freedom in parts)
    return error**4 / loss if loss else math.inf


@dataclass(frozen=True, slots=True)
class Discordant:
    """Pairs of 0 and 1 in which the arms differ."""

    num_fixed: int
    num_broken: int
    p_exact: float | None


def discordant_of(arms: Arms, *, sign: float) -> Discordant | None:
    """Return the pairs that differ; None where rows are no pairs, or scores are not 0 and 1."""
    a, b = arms.reference.scores[0], arms.candidate.scores[0]
    has_seeds = len(arms.reference.scores) + len(arms.candidate.scores) > 2
    if has_seeds or not arms.is_paired or not (is_binary(a) and is_binary(b)):
        return None
    fixed, broken = int(((b - a) * sign > 0).sum()), int(((b - a) * sign < 0).sum())
    few = 0 < fixed + broken < _FEW
    if not few:
        return Discordant(fixed, broken, None)
    from scipy.stats import binomtest

    return Discordant(fixed, broken, float(binomtest(fixed, fixed + broken).pvalue))
