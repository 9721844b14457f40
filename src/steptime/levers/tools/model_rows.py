"""Rows of a batch in what a model takes and returns: counted, joined, compared.

This is no lever, as it has no `LEVER`. Like the levers, it imports only the standard library.
"""

from __future__ import annotations

from typing import Any

from .tensors import map_tensors

TOLERANCE = 1e-3
"""How far outputs in parts may be from those of the whole batch, of their largest: rounding is a
thousand times smaller, and a model that mixes the rows of a batch is further off."""


def batch_size(torch: Any, value: Any) -> int | None:
    """Return the length that all tensors in a call's arguments have in common, if they have."""
    sizes = {one.shape[0] if one.dim() else None for one in tensors_in(torch, value)}
    return sizes.pop() if len(sizes) == 1 else None


def tensors_in(torch: Any, value: Any) -> list[Any]:
    """Return the tensors in a value, in a fixed order."""
    found: list[Any] = []

    def note(tensor: Any) -> Any:
        found.append(tensor)
        return tensor

    map_tensors(torch, value, note)
    return found


def join(torch: Any, results: list[Any], sizes: list[int]) -> Any:
    """Return the results of parts as one result.

    Raises:
        ValueError: a tensor in them does not have a row for each row of its part.
    """
    columns = [tensors_in(torch, result) for result in results]
    for column, size in zip(columns, sizes, strict=True):
        if any(not one.dim() or one.shape[0] != size for one in column):
            raise ValueError("an output has no row for each row of the batch")
    joined = iter([torch.cat(list(row)) for row in zip(*columns, strict=True)])
    return map_tensors(torch, results[0], lambda _: next(joined))


def is_close(found: Any, whole: Any) -> bool:
    """Return whether a result in parts is that of the whole batch, up to rounding."""
    if found.shape != whole.shape or found.dtype != whole.dtype:
        return False
    if not whole.is_floating_point():
        return bool((found == whole).all())
    allowed = TOLERANCE * max(1e-12, float(whole.detach().abs().max()))
    return bool((found - whole.detach()).abs().max() <= allowed)
