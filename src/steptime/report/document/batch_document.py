"""Makes the document of `steptime plan batch`.

In: a `BatchPlan`. Out: a `BatchDocument` in its envelope.
"""

from __future__ import annotations

from dataclasses import dataclass

from steptime.plan.values.batch_values import BatchPlan
from steptime.report.document.envelope import Envelope, enclose


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchDocument:
    """The sizes of a batch that go together.

    Attributes:
        batch: the sizes that follow from those given.
    """

    batch: BatchPlan


def batch_envelope(plan: BatchPlan) -> Envelope[BatchDocument]:
    """Return the envelope of a plan."""
    return enclose("plan batch", BatchDocument(batch=plan), exit_code=0)
