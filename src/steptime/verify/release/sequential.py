"""Gains of rows that come in over time, with intervals that hold at every look; lost rows.

Source: I. Waudby-Smith, D. Arbour, R. Sinha, E. H. Kennedy, A. Ramdas, Annals of Statistics 52,
2024, asymptotic confidence sequences, by the library `ville`; A. Fabijan et al., KDD 2019, for the
ratio of the arms: chi-squared at 0.001.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steptime.errors import DataError
from steptime.verify.model.signed_gains import LEVEL, SignedGain
from steptime.verify.values import Outcome, QualityCheck

if TYPE_CHECKING:
    from steptime.verify.model.two_arms import Floats

_RATIO_P = 0.001
"""Below it, something loses rows of one arm, and the others are not comparable."""

LEAST_UNITS = 100
"""Of each arm: the guarantee is of large samples."""

_NARROWEST = 1000
"""Units at which the sequence is narrowest; stated before the data, or it would not hold."""

_SORTED = 0.5
"""Of the changes of arm of a shuffled order (A. Wald, J. Wolfowitz, Annals of Mathematical
Statistics 11, 1940): seven standard deviations below them in the smallest arms that are judged."""


def sequential_gain(scores: Floats, is_candidate: Floats, *, share: float) -> SignedGain:
    """Return the gain of the candidate; its interval holds however often it is looked at.

    The error is that of a normal interval as wide as the sequence. At smaller levels than 5 %, a
    p-value made of it is too large rather than too small, for the sequence grows more slowly.

    Args:
        scores: of each unit, in the order of arrival (num_units,), more is better.
        is_candidate: 1 for a unit of the candidate, else 0 (num_units,).
        share: the share of the units that was to go to the candidate.

    Raises:
        DataError: an arm has fewer than 100 units, or the rows are sorted by arm.
    """
    from scipy.stats import norm

    num, num_candidate = len(scores), int(is_candidate.sum())
    least = min(num_candidate, num - num_candidate)
    if least < LEAST_UNITS:
        raise DataError(
            f"TooFewUnits: an arm has {least:,} units; a sequence of looks needs {LEAST_UNITS} of "
            "each.",
            hint="Wait for more, or leave `online` out and look once.",
        )
    num_changes = int((is_candidate[1:] != is_candidate[:-1]).sum())
    expected = 2 * num_candidate * (num - num_candidate) / num
    if num_changes < _SORTED * expected:
        raise DataError(
            f"the rows change their arm {num_changes:,} times, where about {expected:,.0f} are "
            "expected of units in the order of their arrival.",
            hint="Name the column of the time with `order`, or leave `online` out.",
        )
    estimate, radius = sequence_of(scores, is_candidate, share=share)
    return SignedGain(float(estimate[-1]), float(radius[-1] / norm.isf(LEVEL)), num)


def sequence_of(scores: Floats, is_candidate: Floats, *, share: float) -> tuple[Floats, Floats]:
    """Return the gain after each unit and the reach of its interval, (num_units,) each."""
    from ville import AsymptoticABTest

    test = AsymptoticABTest(
        alpha=2 * LEVEL, propensity=share, t_opt=_NARROWEST, min_samples=2 * LEAST_UNITS
    )
    test.fit(scores, is_candidate)
    return test.estimate_, test.upper_ - test.estimate_


def sample_ratio(num_reference: int, num_candidate: int, *, share: float, of: str) -> QualityCheck:
    """Return the check; `share` is that of the candidate, `of` names the table."""
    from scipy.stats import chisquare

    whole = num_reference + num_candidate
    expected = [whole * (1 - share), whole * share]
    p = float(chisquare([num_reference, num_candidate], expected).pvalue)
    return QualityCheck(
        name="sample_ratio",
        outcome=Outcome.PASS if p > _RATIO_P else Outcome.FAIL,
        estimate=p,
        limit=_RATIO_P,
        n=whole,
        detail=f"{of}: {num_reference:,} of the reference, {num_candidate:,} of the candidate, "
        f"p {p:.3g}",
    )
