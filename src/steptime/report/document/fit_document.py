"""Says what keeps a fit from being whole, for its document: a `FitStudy` in an envelope."""

from __future__ import annotations

from steptime.report.document.envelope import ErrorItem
from steptime.report.words.fit.fit_words import describe_answer, describe_reason
from steptime.tune.values.fit_values import FitStudy
from steptime.verify.values import Outcome


def fit_errors(study: FitStudy) -> tuple[ErrorItem, ...]:
    """Return what went wrong; a command that does not fit is none of it."""
    if study.is_interrupted:
        return (ErrorItem(code="interrupted", message="the fit was interrupted"),)
    if study.peak is None:
        words = describe_reason(study.reason, study.reason_facts)
        code = "time_limit" if study.reason in TIMES else "script_failed"
        return (ErrorItem(code=code, message=f"the command as written: {words}"),)
    quality = study.quality
    if study.recipe and (quality is None or quality.outcome is not Outcome.PASS):
        return (ErrorItem(code="not_proven", message=describe_answer(study)),)
    return ()


TIMES = ("time_limit", "no_first_step", "hung", "budget")
"""Reasons of a command that took too long."""
