"""Tests of a gain beside "not worse": still, which is shown and not assumed, and the rows for it.

Source: D. J. Schuirmann, J. Pharmacokinet. Biopharm. 15, 1987, for two one-sided tests.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

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


def worst(outcomes: Iterable[Outcome]) -> Outcome:
    """Return the gravest answer; PASS where there is none."""
    found = set(outcomes)
    return next((one for one in (Outcome.FAIL, Outcome.INCONCLUSIVE) if one in found), Outcome.PASS)


def mean_gain(gains: list[SignedGain]) -> SignedGain:
    """Return the mean of independent gains with its error."""
    num = len(gains)
    error = math.hypot(*(one.error for one in gains)) / num
    mean = math.fsum(one.mean for one in gains) / num
    return SignedGain(mean, error, sum(one.num for one in gains))


def num_more(gain: Interval, distance: float, *, num_tests: int) -> int | None:
    """Return the rows, beside those there are, that show a distance; None where none would.

    Args:
        gain: with its interval of 90 %, of the rows that there are.
        distance: from the gain to the border that it must keep clear of.
        num_tests: tests that must all be decided: each is planned with its share of the power.
    """
    from scipy.stats import norm

    level = float(norm.isf(LEVEL))
    error = (gain.high - gain.low) / 2 / level
    if not distance or not error or not gain.n:
        return None
    reach = level + float(norm.isf((1 - _POWER) / max(num_tests, 1)))
    needed = gain.n * (reach * error / distance) ** 2
    return max(math.ceil(needed) - gain.n, 1) if math.isfinite(needed) else None
