"""Batches of images made smaller, wherever they are in what a model takes.

This is no lever, as it has no `LEVER`. Like the levers, it imports only the standard library.
"""

from __future__ import annotations

from typing import Any

from ._padding import fields_of
from ._tensors import map_tensors

MIN_SIDE = 16
"""Pixels: smaller images stay, and none is made smaller than that."""

MULTIPLE = 8
"""Sides are multiples of this, so that there are few sizes."""


def image_in(torch: Any, value: Any) -> Any:
    """Return the batch of images (rows, 1 or 3, height, width) in a value.

    It is None without any, and with several: one may be a target that has no values in between.
    """
    found = [one for _, one in fields_of(torch, value) if is_image(one)]
    return found[0] if len(found) == 1 else None


def is_image(tensor: Any) -> bool:
    """Return whether a tensor is a batch of images that nothing differentiates."""
    if tensor.dim() != 4 or not tensor.is_floating_point() or tensor.requires_grad:
        return False
    return tensor.shape[1] in (1, 3) and min(tensor.shape[2:]) > MIN_SIDE


def size_at(size: Any, fraction: float) -> tuple[int, ...]:
    """Return height and width for a share of the sides."""
    return tuple(
        min(one, max(MIN_SIDE, round(one * fraction / MULTIPLE) * MULTIPLE)) for one in size
    )


def made_smaller(torch: Any, value: Any, size: Any, small: tuple[int, ...]) -> Any:
    """Return a value whose images of one size have a smaller one."""

    def shrink(tensor: Any) -> Any:
        if not is_image(tensor) or tensor.shape[2:] != size:
            return tensor
        with torch.no_grad():
            return torch.nn.functional.interpolate(
                tensor, size=small, mode="bilinear", antialias=True
            )

    return map_tensors(torch, value, shrink)


def shapes_of(torch: Any, value: Any) -> list[tuple[str, Any]]:
    """Return the names and shapes of the tensors in a value."""
    return [(name, one.shape) for name, one in fields_of(torch, value)]
