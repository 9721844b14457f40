"""Checks that the arms of an experiment have the rows that they were to have.

Source: A. Fabijan et al., KDD 2019, on sample ratio mismatch: a chi-squared test at 0.001.
"""

from __future__ import annotations

from steptime.verify.values import Outcome, QualityCheck

_RATIO_P = 0.001
"""Below it, something loses rows of one arm, and what is left of it is not comparable."""


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
        detail=f"{of}: {num_reference:,} of the reference, {num_candidate:,} of the candidate",
    )
