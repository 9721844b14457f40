"""Arrow IPC: Feather, Arrow streams, and what Hugging Face datasets save, in one file or many.

Local files are mapped. A sample of an uncompressed file costs what it has; one of a compressed
file costs the decoding of its batch. A stream that is compressed, or lies in a store, is taken
into memory as a whole. What was decoded last is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from steptime.data.source import Column, Values
from steptime.data.sources.decoded_groups import CACHE_BYTES, DecodedGroups
from steptime.data.sources.file_object import file_object
from steptime.data.sources.formats.arrow_values import columns_of, values_of
from steptime.data.sources.shards import OpenShards, find_shards
from steptime.data.stored_bytes import (
    DamagedBytesError,
    LocalBytes,
    StoredBytes,
    StoredPlace,
    by_shard,
)
from steptime.errors import DataError

MAGIC = b"ARROW1"
WHOLE = -1
"""The number of what is decoded of a stream: all its batches."""


class ArrowBatches(NamedTuple):
    """All batches of all shards that have rows."""

    shards: tuple[StoredPlace, ...]
    schema: pa.Schema
    starts: NDArray[np.int64]
    """(num_batches + 1,) the first sample of each."""
    shard_of: NDArray[np.int64]
    number_of: NDArray[np.int64]
    """The batch's number in its shard."""
    streams: frozenset[int]
    """Shards whose batches can only be read one after another."""
    unpacks: bool
    """Whether a batch has bytes of its own: compressed, or not mapped."""
    num_bytes: int


class ArrowReader:
    """See the module."""

    def __init__(
        self, name: str, batches: ArrowBatches, wanted: tuple[str, ...] | None, cache_bytes: int
    ) -> None:
        self.name = name
        self._batches = batches
        self._shards = OpenShards(batches.shards)
        self._cache: DecodedGroups[list[pa.RecordBatch]] = DecodedGroups(cache_bytes)
        self._files: dict[int, tuple[Any, Lock]] = {}
        self._opening = Lock()
        where = self._shards.name(0)
        self.columns: tuple[Column, ...] = columns_of(batches.schema, where, wanted)
        names = batches.schema.names
        self._fields = [i for i, name in enumerate(names) if wanted is None or name in wanted]
        self.num_bytes = batches.num_bytes
        self.reads_in_flight = int(batches.unpacks)

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(self._batches.starts[-1])

    def read(self, indices: NDArray[np.int64]) -> dict[str, Values]:
        """Return rows; those of one batch are taken together."""
        parts, order = [], []
        for batch, positions, rows in by_shard(indices, self._batches.starts):
            parts.append(self._batch(batch).take(pa.array(rows)))
            order.append(positions)
        table = pa.Table.from_batches(parts)
        if len(parts) > 1:
            back = np.argsort(np.concatenate(order), kind="stable")
            table = table.take(pa.array(back))
        return values_of(table, self.columns)

    def _batch(self, batch: int) -> pa.RecordBatch:
        shard, number = int(self._batches.shard_of[batch]), int(self._batches.number_of[batch])
        stored = self._shards[shard]
        if isinstance(stored, LocalBytes) and stored.current_size() < stored.size:
            raise DamagedBytesError("the file has become shorter since it was opened")
        key = shard, WHOLE if shard in self._batches.streams else number
        group = self._cache.get(key, lambda: self._decode(stored, *key))
        found = group[number if shard in self._batches.streams else 0]
        expected = int(self._batches.starts[batch + 1] - self._batches.starts[batch])
        if found.num_rows != expected:
            raise DamagedBytesError(f"a batch has {found.num_rows:,} rows, and had {expected:,}")
        return found

    def _decode(
        self, stored: StoredBytes, shard: int, number: int
    ) -> tuple[list[pa.RecordBatch], int]:
        if number == WHOLE:
            decoded = list(batches_of(stored, self._fields))
        else:
            with self._opening:
                if shard not in self._files:
                    self._files[shard] = open_batches(stored, self._fields), Lock()
                file, lock = self._files[shard]
            with lock:  # one reader of Arrow is not for two threads
                decoded = [file.get_batch(number)]
        for batch in decoded:
            batch.validate(full=True)
        return decoded, sum(_own_bytes(batch, stored) for batch in decoded)

    def place_of(self, index: int) -> str:
        """Return file and row."""
        batches = self._batches
        batch = int(np.searchsorted(batches.starts, index, side="right")) - 1
        shard = batches.shard_of[batch]
        first = int(batches.starts[np.searchsorted(batches.shard_of, shard)])
        return f"{self._shards.name(int(shard))}, row {index - first}"

    def index(self) -> ArrowBatches:
        """Return the batches, which are found by walking through all shards."""
        return self._batches

    def close(self) -> None:
        """Let go of batches and files."""
        self._cache.clear()
        self._files.clear()
        self._shards.close()


def is_file(stored: StoredBytes) -> bool:
    """Whether it is a file, whose batches can be found, and no stream."""
    return stored.read_at(0, len(MAGIC)) == MAGIC


def open_batches(stored: StoredBytes, fields: list[int]) -> Any:
    """Open a file or a stream by Arrow, with these fields alone."""
    options = pa.ipc.IpcReadOptions(use_threads=False, included_fields=fields)
    opener = pa.ipc.open_file if is_file(stored) else pa.ipc.open_stream
    return opener(file_object(stored), options=options)


def batches_of(stored: StoredBytes, fields: list[int]) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a file or stream, with these fields alone."""
    reader = open_batches(stored, fields)
    if is_file(stored):
        yield from map(reader.get_batch, range(reader.num_record_batches))
    else:
        yield from reader


def _own_bytes(batch: pa.RecordBatch, stored: StoredBytes) -> int:
    """Bytes that a batch has in memory, and not in the map of its file."""
    if not isinstance(stored, LocalBytes):
        return int(batch.nbytes)
    mapped = pa.py_buffer(stored.mapped())
    end = mapped.address + mapped.size
    buffers = [b for column in batch.columns for b in column.buffers() if b is not None]
    return sum(b.size for b in buffers if not mapped.address <= b.address < end)


def open_arrow(
    place: StoredPlace,
    index: ArrowBatches | None,
    *,
    split: str | None = None,
    columns: tuple[str, ...] | None = None,
    cache_bytes: int = CACHE_BYTES,
) -> ArrowReader:
    """Open a file or a folder of shards.

    Args:
        place: the file or folder.
        index: the batches, where they are known.
        split: the split to take, where names of shards tell several.
        columns: the columns to read; None for all.
        cache_bytes: of batches that had to be decoded and are kept [bytes].
    """
    if index is None:
        index = find_batches(find_shards(place, split, (".arrow", ".feather", ".ipc")))
    wanted = None if columns is None else tuple(columns)
    return ArrowReader("Arrow IPC", index, wanted, cache_bytes)


def find_batches(shards: list[StoredPlace]) -> ArrowBatches:
    """Walk through shards and count the rows of each batch.

    Raises:
        DataError: one is damaged, or has other columns than the first.
    """
    opened = OpenShards(shards)
    schema: pa.Schema | None = None
    found: list[tuple[int, int, int]] = []
    streams: set[int] = set()
    unpacks, num_bytes = False, 0
    for shard, where in enumerate(shards):
        try:
            stored = opened[shard]
            own = open_batches(stored, []).schema
            for number, batch in enumerate(batches_of(stored, [_narrowest(own)])):
                found.append((shard, number, batch.num_rows))
                unpacks = unpacks or _own_bytes(batch, stored) > 0
            streams |= set() if is_file(stored) else {shard}
        except (OSError, ValueError, pa.ArrowException, MemoryError) as error:
            raise DataError(f"{where.where} cannot be read as Arrow: {error}") from error
        schema = own if schema is None else schema
        if not own.equals(schema):
            raise DataError(f"{where.where} has other columns than {shards[0].where}")
        num_bytes += stored.size
    table = np.array([row for row in found if row[2]], np.int64).reshape(-1, 3)
    starts = np.concatenate([[0], np.cumsum(table[:, 2])])
    numbers = table[:, 0], table[:, 1]
    kinds = frozenset(streams), unpacks
    return ArrowBatches(tuple(shards), schema, starts, *numbers, *kinds, num_bytes)


def _narrowest(schema: pa.Schema) -> int:
    """The field that is read in order to count rows: a compressed one must be decoded for it."""
    widths = []
    for field in schema:
        try:
            widths.append(field.type.bit_width)
        except ValueError:
            widths.append(1 << 30)
    return int(np.argmin(widths)) if widths else 0
