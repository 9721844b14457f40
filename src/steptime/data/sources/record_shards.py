"""Records of any length in many files: where each lies, and many of them read at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from steptime.data.source import Column, Values
from steptime.data.sources.shards import OpenShards
from steptime.data.stored_bytes import StoredPlace, by_shard, read_ranges


class RecordIndex(NamedTuple):
    """Where each record of all shards lies."""

    shards: tuple[StoredPlace, ...]
    starts: NDArray[np.int64]
    """(num_shards + 1,) the first record of each shard."""
    offsets: NDArray[np.int64]
    """(num_records,) in its shard [bytes]."""
    sizes: NDArray[np.int64]
    """(num_records,) [bytes]."""

    def place_of(self, index: int) -> str:
        """Return the shard and the row in it."""
        shard = int(np.searchsorted(self.starts, index, side="right")) - 1
        return f"{self.shards[shard].where}, row {index - int(self.starts[shard])}"


def join_index(
    shards: Sequence[StoredPlace], found: Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]]
) -> RecordIndex:
    """Join (offsets, sizes) of each shard."""
    starts = np.cumsum([0, *(len(offsets) for offsets, _ in found)], dtype=np.int64)
    none = np.empty(0, np.int64)
    offsets = np.concatenate([none, *(offsets for offsets, _ in found)])
    sizes = np.concatenate([none, *(sizes for _, sizes in found)])
    return RecordIndex(tuple(shards), starts, offsets, sizes)


def read_records(
    shards: OpenShards, index: RecordIndex, indices: NDArray[np.int64]
) -> list[memoryview]:
    """Return records in the order asked for; neighbours come in one read."""
    records: list[memoryview] = [memoryview(b"")] * len(indices)
    for shard, positions, rows in by_shard(indices, index.starts):
        at = rows + index.starts[shard]
        parts = read_ranges(shards[shard], index.offsets[at].tolist(), index.sizes[at].tolist())
        for position, part in zip(positions.tolist(), parts, strict=True):
            records[position] = part
    return records


def stack(values: list[Any], column: Column) -> Values:
    """Return the values of one column for a batch: one array where the column has a shape.

    Raises:
        ValueError: a value has not the shape that the column has.
    """
    if column.dtype is None or column.shape is None or any(value is None for value in values):
        return values
    if column.shape == ():
        return np.array(values, column.dtype)
    for value in values:
        if value.shape != column.shape:
            expected = f"{column.shape}, as the first samples have it"
            raise ValueError(f"column {column.name} has the shape {value.shape} and not {expected}")
    return np.stack(values)
