"""Values of many samples by column: joined from pieces, taken apart, as tensors of torch."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steptime.data.source import Values

Columns = Mapping[str, Values]

# What torch has no type for stays with numpy.
_TENSOR_KINDS = "biufc"


def join(pieces: Sequence[Columns]) -> Columns:
    """Return the samples of several pieces as one, in order; a single piece is not copied."""
    if len(pieces) == 1:
        return pieces[0]
    return {name: _joined([piece[name] for piece in pieces]) for name in pieces[0]}


def _joined(parts: list[Values]) -> Values:
    arrays = [part for part in parts if isinstance(part, np.ndarray)]
    if len(arrays) == len(parts) and len({(one.dtype, one.shape[1:]) for one in arrays}) == 1:
        joined: NDArray[Any] = np.concatenate(arrays)
        return joined
    return [value for part in parts for value in part]


def one_of(columns: Columns, place: int) -> dict[str, Any]:
    """Return one sample of many."""
    return {name: values[place] for name, values in columns.items()}


def own(columns: Columns) -> Columns:
    """Return the columns with arrays that whoever gets them may write into."""
    return {
        name: np.array(values)
        if isinstance(values, np.ndarray) and not (values.flags.owndata and values.flags.writeable)
        else values
        for name, values in columns.items()
    }


def num_rows(columns: Columns) -> int:
    """Return how many samples there are."""
    return min((len(values) for values in columns.values()), default=0)


def as_arrays(columns: Columns) -> dict[str, Values]:
    """Return columns whose values are arrays of one shape, or numbers, as one array each."""
    return {name: _as_array(values) for name, values in columns.items()}


def _as_array(values: Values) -> Values:
    if isinstance(values, np.ndarray) or not len(values):
        return values
    if all(isinstance(value, (bool, int, float, np.number, np.bool_)) for value in values):
        return np.asarray(values)
    first = values[0]
    if isinstance(first, np.ndarray) and all(
        isinstance(one, np.ndarray) and one.shape == first.shape and one.dtype == first.dtype
        for one in values
    ):
        return np.stack(values)
    return values


def as_tensors(columns: Columns, *, views: bool = False) -> dict[str, Any]:
    """Return arrays of numbers as tensors of torch, where torch has been imported.

    Args:
        columns: values by column.
        views: whether a tensor may share its memory with the source (a mapped file). Then nobody
            may write into it; else an array that does not own its memory is copied.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return dict(columns)
    return {name: _as_tensor(torch, values, views) for name, values in columns.items()}


def _as_tensor(torch: Any, values: Values, views: bool) -> Any:  # noqa: FBT001
    if not isinstance(values, np.ndarray) or values.dtype.kind not in _TENSOR_KINDS:
        return values
    if not values.dtype.isnative or values.dtype.itemsize > 8 + 8 * (values.dtype.kind == "c"):
        return values
    must_copy = not values.flags.owndata and not views
    if must_copy or not values.flags.writeable or any(stride < 0 for stride in values.strides):
        values = np.array(values)  # an array of ndarray itself, also of a mapped one
    return torch.from_numpy(values)
