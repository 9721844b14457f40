"""The sizes of all rows of a data set, from what it holds in memory; no row is read.

A list with an element for each row is a candidate: of lengths, of texts, of tokens, of tensors, of
heights and widths. Whether it tells how large a batch becomes, the batches that are seen decide.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from math import prod
from typing import Any, NamedTuple

from ..watchers.held_objects import list_of, values_of

MAX_ROWS = 500_000
"""Reading as many sizes takes a quarter of a second, once."""

MAX_COLUMNS = 3
MAX_DEPTH = 6
MAX_SIZE = 1 << 40

LENGTHS = ("length", "lengths")
SHAPES = ("sizes", "shapes", "image_sizes")
"""Names of what holds a whole number, or the sides of an image, for each row."""


class SizeColumn(NamedTuple):
    """A size for each row, and the name of the attribute that told."""

    name: str
    sizes: Sequence[int]


def find_columns(torch: Any, dataset: Any, depth: int = MAX_DEPTH) -> list[SizeColumn]:
    """Return what may tell the sizes of all rows, the likeliest first; all sizes differ."""
    return [one for one in columns_of(torch, dataset, depth) if differ(one.sizes)][:MAX_COLUMNS]


def columns_of(torch: Any, dataset: Any, depth: int) -> list[SizeColumn]:
    """Return the columns of a data set, or of those that it is made of."""
    data, num = torch.utils.data, len(dataset)
    if not depth or not 1 < num <= MAX_ROWS:
        return []
    if type(dataset) is data.Subset:
        inner = columns_of(torch, dataset.dataset, depth - 1)
        where = [int(index) for index in dataset.indices]
        return [
            SizeColumn(one.name, array("q", map(one.sizes.__getitem__, where))) for one in inner
        ]
    if type(dataset) is data.ConcatDataset:
        parts = [columns_of(torch, one, depth - 1) for one in dataset.datasets]
        return joined(parts)
    held = sorted(values_of(dataset).items(), key=lambda item: item[0] not in LENGTHS)
    found = []
    for name, value in held:
        sizes = sizes_in(torch, name, value, num)
        if sizes is not None:
            found.append(SizeColumn(name, sizes))
    return found


def joined(parts: list[list[SizeColumn]]) -> list[SizeColumn]:
    """Return the columns that all parts have, one part after another."""
    found = []
    for first in parts[0] if parts else ():
        alike = [next((c for c in part if c.name == first.name), None) for part in parts]
        if None not in alike:
            sizes = array("q")
            for one in alike:
                sizes.extend(one.sizes if one is not None else ())
            found.append(SizeColumn(first.name, sizes))
    return found


def sizes_in(torch: Any, name: str, value: Any, num: int) -> Sequence[int] | None:
    """Return the sizes in an attribute's value, if it has one for each row."""
    if name in LENGTHS and type(value) not in (list, tuple):
        value = whole_numbers(torch, value)
    rows = list_of(value)
    if len(rows) != num:
        return None
    if name in LENGTHS:
        return checked(row if type(row) is int else None for row in rows)
    if name in SHAPES:
        return checked(area_of(row) for row in rows)
    if size_of(torch, rows[0]) is None or size_of(torch, rows[-1]) is None:
        return None
    return checked(size_of(torch, row) for row in rows)


def checked(sizes: Iterable[int | None]) -> Sequence[int] | None:
    """Return sizes in one array; None if one of them is not known."""
    found = array("q")
    for size in sizes:
        if size is None or not 0 <= size <= MAX_SIZE:
            return None
        found.append(size)
    return found


def whole_numbers(torch: Any, value: Any) -> list[Any] | None:
    """Return a row of whole numbers that is a plain tensor on the host, or an array of numpy."""
    if type(value) is torch.Tensor:
        is_plain = value.dim() == 1 and value.is_cpu and not value.is_floating_point()
    else:
        is_plain = type(value).__name__ == "ndarray" and len(value.shape) == 1
    return value.tolist() if is_plain else None


def size_of(torch: Any, row: Any) -> int | None:
    """Return how much a row holds: numbers of a tensor or list, letters of a text; else None."""
    kind = type(row)
    if kind is torch.Tensor:
        return int(row.numel())
    if kind in (str, bytes):
        return len(row)
    if kind.__name__ == "ndarray" and kind.__module__ == "numpy":
        return int(prod(row.shape))
    if kind in (list, tuple) and row and type(row[0]) in (int, float):
        return len(row) if kind is list or len(row) > 2 else None  # a pair is no sequence
    parts = row.values() if kind is dict else row if kind is tuple else ()
    return max((n for part in parts if (n := size_of(torch, part)) is not None), default=None)


def area_of(row: Any) -> int | None:
    """Return the product of the sides of an image."""
    sides = list_of(row)
    return prod(sides) if sides and all(type(one) is int for one in sides) else None


def differ(sizes: Sequence[int]) -> bool:
    """Return whether not all sizes are equal."""
    return len(sizes) > 0 and min(sizes) < max(sizes)
