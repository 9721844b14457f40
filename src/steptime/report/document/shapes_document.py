"""Makes the document of `steptime fit --shapes`.

In: a `ShapeAdvice`. Out: a `ShapesDocument` in its envelope.
"""

from __future__ import annotations

from dataclasses import dataclass

from steptime.plan.values.shape_values import ShapeAdvice
from steptime.report.document.envelope import Envelope, enclose


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapesDocument:
    """The products of a step, and widths that would suit the device better.

    Attributes:
        shapes: products, proposals, and widths that stay.
    """

    shapes: ShapeAdvice


def shapes_envelope(advice: ShapeAdvice) -> Envelope[ShapesDocument]:
    """Return the envelope of an advice."""
    return enclose("fit", ShapesDocument(shapes=advice), exit_code=0)
