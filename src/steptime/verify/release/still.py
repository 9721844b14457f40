"""Tests of a gain beside "not worse": better, and still, which is shown and not assumed.

Source: D. J. Schuirmann, J. Pharmacokinet. Biopharm. 15, 1987, for two one-sided tests.
"""

from __future__ import annotations

import math

from steptime.core.interval import Interval
from steptime.verify.model.signed_gains import LEVEL, SignedGain
from steptime.verify.values import Outcome

_POWER = 0.8
"""Of all required tests together, were the effects as they were seen."""


def judge_still(gain: SignedGain, margin: float) -> Outcome:
    """Return whether a gain is within the margin on both sides; FAIL where it is beyond it."""
    found = gain.interval()
    if -margin < found.low and found.high < margin:
        return Outcome.PASS
    beyond = found.low > margin or found.high < -margin
    return Outcome.FAIL if beyond else Outcome.INCONCLUSIVE


def p_not_better(gain: SignedGain) -> float:
    """Return the probability of such a gain, were there none."""
    from scipy.stats import norm

    if gain.error == 0:
        return 0.0 if gain.mean > 0 else 1.0
    return float(norm.sf(gain.mean / gain.error))


def mean_gain(gains: list[SignedGain]) -> SignedGain:
    """Return the mean of independent gains with its error."""
    num = len(gains)
    error = math.sqrt(math.fsum(one.error**2 for one in gains)) / num
    mean = math.fsum(one.mean for one in gains) / num
    return SignedGain(mean, error, sum(one.num for one in gains))


def as_gain(found: Interval) -> SignedGain:
    """Return the gain whose interval of 90 % this is."""
    from scipy.stats import norm

    error = (found.high - found.low) / 2 / float(norm.isf(LEVEL))
    return SignedGain(found.estimate, error, found.n)


def num_more(gain: SignedGain, distance: float, *, num_tests: int) -> int | None:
    """Return the rows, beside those there are, that show a distance; None where none would.

    Args:
        gain: with the error of the rows that there are.
        distance: from the gain to the border that it must keep clear of, above 0.
        num_tests: tests that must all be decided: each is planned with its share of the power.
    """
    from scipy.stats import norm

    if distance <= 0 or gain.error == 0 or gain.num == 0:
        return None
    reach = float(norm.isf(LEVEL) + norm.isf((1 - _POWER) / max(num_tests, 1)))
    needed = gain.num * (reach * gain.error / distance) ** 2
    return max(math.ceil(needed) - gain.num, 1) if math.isfinite(needed) else None
