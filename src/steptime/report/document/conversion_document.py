"""Makes the document of `steptime data convert`."""

from __future__ import annotations

from steptime.data.values.conversion_values import ConversionAnswer
from steptime.report.blocks.data.conversion_report import refusal_of
from steptime.report.document.envelope import Envelope, ErrorItem, enclose


def conversion_envelope(answer: ConversionAnswer, *, exit_code: int) -> Envelope[ConversionAnswer]:
    """Return the envelope of a conversion; it is partial if it was refused."""
    errors: tuple[ErrorItem, ...] = ()
    if exit_code:
        what, *hints = refusal_of(answer.prediction)
        errors = (ErrorItem(code="no_gain", message=what, hint="\n".join(hints)),)
    return enclose("data", answer, exit_code=exit_code, errors=errors)
