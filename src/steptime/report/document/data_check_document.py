"""Makes the document of `steptime data check`.

In: a `DataCheckReport`. Out: a `DataCheckDocument` in its envelope.
"""

from __future__ import annotations

from dataclasses import dataclass

from steptime.data.values.data_check_values import DataCheckReport
from steptime.report.document.envelope import Envelope, ErrorItem, enclose
from steptime.verify.values import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class DataCheckDocument:
    """What the samples of a training and their order are like.

    Attributes:
        report: all checks, with their outcomes.
    """

    report: DataCheckReport


def data_check_envelope(report: DataCheckReport, *, exit_code: int) -> Envelope[DataCheckDocument]:
    """Return the envelope of a report; each check that failed is one of its errors."""
    errors = [
        ErrorItem(code=f"data_{check.name}", message=check.finding, hint=check.advice)
        for check in report.checks
        if check.outcome is Outcome.FAIL
    ]
    if report.failure is not None:
        errors.append(ErrorItem(code="script_failed", message=report.failure))
    document = DataCheckDocument(report=report)
    return enclose("data", document, exit_code=exit_code, errors=tuple(errors))
