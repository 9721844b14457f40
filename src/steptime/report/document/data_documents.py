"""Makes the documents of `steptime data`: values in, envelopes out."""

from __future__ import annotations

from dataclasses import dataclass

from steptime.data.values.conversion_values import ConversionAnswer
from steptime.data.values.data_check_values import DataCheckReport
from steptime.data.values.tf_data_values import TfData
from steptime.measure.values.loader_bench import LoaderBench
from steptime.report.blocks.data.conversion_report import refusal_of
from steptime.report.document.envelope import Envelope, ErrorItem, enclose
from steptime.report.words.data.loader_words import describe_no_loader
from steptime.verify.values import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderDocument:
    """What the loader of a training costs.

    Attributes:
        bench: what was measured.
        next_commands: the commands that follow from it; empty where no loader helps.
        page: the file with the page; null where none was written.
        tf_data: what tf.data's own statistics say; null where it did not feed the training.
    """

    bench: LoaderBench
    next_commands: tuple[str, ...] = ()
    page: str | None = None
    tf_data: TfData | None = None


def loader_envelope(document: LoaderDocument, *, exit_code: int) -> Envelope[LoaderDocument]:
    """Return the envelope of a bench; it is partial if no loader was measured."""
    word = document.bench.missing.get("loader")
    errors: tuple[ErrorItem, ...] = ()
    if word is not None and not (document.tf_data and document.tf_data.pipeline):
        errors = (ErrorItem(code=word, message=describe_no_loader(document.bench)),)
    return enclose("data", document, exit_code=exit_code, errors=errors)


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


def conversion_envelope(answer: ConversionAnswer, *, exit_code: int) -> Envelope[ConversionAnswer]:
    """Return the envelope of a conversion; it is partial if it was refused."""
    errors: tuple[ErrorItem, ...] = ()
    if exit_code:
        what, *hints = refusal_of(answer.prediction)
        errors = (ErrorItem(code="no_gain", message=what, hint="\n".join(hints)),)
    return enclose("data", answer, exit_code=exit_code, errors=errors)
