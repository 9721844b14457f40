"""Records of any length in many files: where each lies, and many of them read at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from steptime.data.source import Column, Values
from steptime.data.sources.shards import OpenShards
from steptime.data.stored_bytes import StoredBytes, StoredPlace, by_shard, read_exactly, read_ranges

WINDOW_BYTES = 256 << 10
"""Read at once while records are walked through: many small ones, or the next header alone."""
HEADER_BYTES = 4096


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


class RecordWalk:
    """Reads a file from its front to its end: a window at once where records are small."""

    def __init__(self, stored: StoredBytes) -> None:
        self._stored = stored
        self._window = b""
        self._begin = 0

    def read(self, offset: int, count: int) -> bytes:
        """Return bytes further on; the file must have them."""
        inner = offset - self._begin
        if inner < 0 or inner + count > len(self._window):
            near = inner <= len(self._window) + WINDOW_BYTES
            wanted = max(count, WINDOW_BYTES if near else HEADER_BYTES)
            available = max(count, min(wanted, self._stored.size - offset))
            self._window = read_exactly(self._stored, offset, available)
            self._begin, inner = offset, 0
        return self._window[inner : inner + count]


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
