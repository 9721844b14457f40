"""Makes the document of `steptime plan shapes`.

In: a `ShapeAdvice`. Out: a `ShapesDocument` in its envelope.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from steptime.plan.values.shape_values import ShapeAdvice
from steptime.report.document.envelope import Envelope, enclose


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapesDocument:
    """The products of a step, and widths that would suit the device better.

    Attributes:
        shapes: products, proposals, and widths that stay.
        page: path of its page, an HTML file; null where it could not be written.
    """

    shapes: ShapeAdvice
    page: str | None = None


def shapes_envelope(advice: ShapeAdvice, *, page: Path | None = None) -> Envelope[ShapesDocument]:
    """Return the envelope of an advice, with the place of its page."""
    where = None if page is None else str(page)
    return enclose("plan shapes", ShapesDocument(shapes=advice, page=where), exit_code=0)
