"""The documents of `steptime plan`."""

from __future__ import annotations

from dataclasses import dataclass

from steptime.plan.values.batch_values import BatchPlan
from steptime.plan.values.shape_values import ShapeAdvice


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchDocument:
    """The sizes of a batch that go together.

    Attributes:
        batch: the sizes that follow from those given.
    """

    batch: BatchPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapesDocument:
    """The products of a step, and widths that would suit the device better.

    Attributes:
        shapes: products, proposals, and widths that stay.
        page: path of its page, an HTML file; null where it could not be written.
    """

    shapes: ShapeAdvice
    page: str | None = None
