"""The lengths of a data set's rows, where they cost little; the guest and a lever use this.

This is no lever, as it has no `LEVER`. Like the levers, it imports only the standard library.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any

from .mask_padding import find_useful, is_whole, row_lengths

LIMIT_S = 1.0
"""All rows are read for their lengths, once, where that takes no longer than this."""

COLUMNS = ("length", "lengths")
"""Names of an attribute, or of a column of Hugging Face's data sets, that holds the lengths."""

COLUMN, MASK, ROWS = "column", "mask", "rows"
"""Where lengths come from, in the words of `LoaderFacts.lengths_from`."""


def known_lengths(torch: Any, dataset: Any) -> tuple[str, list[int]] | None:
    """Return the lengths of all rows and where they stand; None if rows would have to be read."""
    if type(dataset) is torch.utils.data.Subset:
        found = known_lengths(torch, dataset.dataset)
        return found and (found[0], [found[1][int(index)] for index in dataset.indices])
    column = as_lengths(find_column(dataset), len(dataset))
    if column is not None:
        return COLUMN, column
    if type(dataset) is torch.utils.data.TensorDataset:
        fields = [(str(place), part) for place, part in enumerate(dataset.tensors)]
        mask = find_useful(torch, fields)
        return mask and (MASK, row_lengths(torch, mask[1]))
    return None


def find_column(dataset: Any) -> Any:
    """Return what the data set holds under the name of a column of lengths."""
    names = getattr(dataset, "column_names", None)
    for name in COLUMNS:
        if isinstance(names, (list, tuple)) and name in names:
            return dataset[name]
        if name in getattr(dataset, "__dict__", {}):
            return getattr(dataset, name)
    return None


def as_lengths(column: Any, num: int) -> list[int] | None:
    """Return a column of whole numbers, one a row, as a list; None if it is anything else."""
    if hasattr(column, "tolist"):
        column = column.tolist()
    if isinstance(column, (str, bytes)) or not isinstance(column, Sequence) or len(column) != num:
        return None
    found = list(column)
    return found if all(type(one) is int for one in found) else None


def read_lengths(
    torch: Any, dataset: Any, *, limit_s: float, clock: Callable[[], float] = perf_counter
) -> list[int] | None:
    """Return the length of each row, by reading them; None where it takes longer than a limit."""
    began, found = clock(), []
    for index in range(len(dataset)):
        length = length_of(torch, dataset[index])
        if length is None or clock() - began > limit_s:
            return None
        found.append(length)
    return found


def length_of(torch: Any, sample: Any) -> int | None:
    """Return how long a sample's row is: by its mask, else its tokens; None if it has neither."""
    if isinstance(sample, Mapping):
        if (mask := numbers_in(torch, sample.get("attention_mask"))) is not None:
            return max((place for place, one in enumerate(mask, start=1) if one), default=0)
        parts = [sample.get("input_ids"), *sample.values()]
    elif isinstance(sample, (tuple, list)):
        parts = list(sample)
    else:
        parts = [sample]
    rows = (numbers_in(torch, part) for part in parts)
    return next((len(row) for row in rows if row is not None), None)


def numbers_in(torch: Any, part: Any) -> Sequence[Any] | None:
    """Return a row of whole numbers; None if the part is anything else."""
    if isinstance(part, torch.Tensor):
        if part.dim() != 1 or not (is_whole(torch, part) or part.dtype is torch.bool):
            return None
        row: list[int] = part.tolist()
        return row
    if isinstance(part, (list, tuple)) and part and all(type(one) is int for one in part):
        return part
    return None
