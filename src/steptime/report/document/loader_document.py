"""Makes the document of `steptime data bench`.

In: a `LoaderBench`. Out: a `LoaderDocument` in its envelope.
"""

from __future__ import annotations

from dataclasses import dataclass

from steptime.data.values.tf_data_values import TfData
from steptime.measure.values.loader_bench import LoaderBench
from steptime.report.document.envelope import Envelope, ErrorItem, enclose
from steptime.report.words.data.loader_words import describe_no_loader


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
