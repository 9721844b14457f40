"""Arrow IPC: Feather, Arrow streams, and what Hugging Face datasets save, in one file or many.

Local files are mapped. A sample of an uncompressed file costs what it has; one of a compressed
file costs the decoding of its batch. The batches used last are kept.
"""

from __future__ import annotations

from threading import Lock
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from steptime.data.source import Column, Values
from steptime.data.sources.arrow_messages import (
    BATCH,
    DICTIONARY,
    MAGIC,
    Message,
    check_unpacked_size,
    messages_of,
)
from steptime.data.sources.arrow_values import columns_of, values_of
from steptime.data.sources.decoded_groups import CACHE_BYTES, DecodedGroups
from steptime.data.sources.file_object import file_object
from steptime.data.sources.shards import OpenShards, find_shards
from steptime.data.stored_bytes import LocalBytes, StoredBytes, StoredPlace, by_shard, read_exactly
from steptime.errors import DataError


class ArrowBatches(NamedTuple):
    """All batches of all shards that have rows."""

    shards: tuple[StoredPlace, ...]
    schema: pa.Schema
    starts: NDArray[np.int64]
    """(num_batches + 1,) the first sample of each."""
    shard_of: NDArray[np.int64]
    number_of: NDArray[np.int64]
    """The batch's number in its shard."""
    messages: tuple[Message, ...]
    with_dictionaries: frozenset[int]
    """Shards whose batches need what came before them."""
    num_bytes: int


class ArrowReader:
    """See the module."""

    def __init__(
        self, name: str, batches: ArrowBatches, wanted: tuple[str, ...] | None, cache_bytes: int
    ) -> None:
        self.name = name
        self._batches = batches
        self._shards = OpenShards(batches.shards)
        self._cache: DecodedGroups[pa.RecordBatch] = DecodedGroups(cache_bytes)
        self._whole: dict[int, list[pa.RecordBatch]] = {}
        self._lock = Lock()
        where = self._shards.name(0)
        self.columns: tuple[Column, ...] = columns_of(batches.schema, where, wanted)
        self._wanted = [n for n in batches.schema.names if wanted is None or n in wanted]
        self.num_bytes = batches.num_bytes
        self.reads_in_flight = int(any(message.unpacks for message in batches.messages))

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
        shard = int(self._batches.shard_of[batch])
        return self._cache.get((shard, batch), lambda: self._decode(shard, batch))

    def _decode(self, shard: int, batch: int) -> tuple[pa.RecordBatch, int]:
        message = self._batches.messages[batch]
        stored = self._shards[shard]
        data = _bytes_of(stored, message)
        unpacked = check_unpacked_size(message, memoryview(data)) if message.unpacks else 0
        if shard in self._batches.with_dictionaries:
            decoded = self._in_turn(shard, int(self._batches.number_of[batch]))
        else:
            whole = pa.ipc.read_message(pa.BufferReader(data))
            decoded = pa.ipc.read_record_batch(whole, self._batches.schema)
        decoded = decoded.select(self._wanted)
        decoded.validate(full=True)
        expected = int(self._batches.starts[batch + 1] - self._batches.starts[batch])
        if decoded.num_rows != expected:
            raise ValueError(f"the batch has {decoded.num_rows:,} rows instead of {expected:,}")
        is_copied = message.unpacks or not isinstance(stored, LocalBytes)
        return decoded, max(unpacked, message.body_bytes) if is_copied else 0

    def _in_turn(self, shard: int, number: int) -> pa.RecordBatch:
        """A batch of a file with dictionaries: Arrow reads those that came before it."""
        with self._lock:
            if shard not in self._whole:
                source = file_object(self._shards[shard])
                if read_exactly(self._shards[shard], 0, 6) == MAGIC:
                    reader = pa.ipc.open_file(source)
                    batches = [reader.get_batch(i) for i in range(reader.num_record_batches)]
                else:
                    batches = list(pa.ipc.open_stream(source))
                self._whole[shard] = [batch for batch in batches if batch.num_rows]
            return self._whole[shard][number]

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
        self._whole.clear()
        self._shards.close()


def _bytes_of(stored: StoredBytes, message: Message) -> pa.Buffer:
    if isinstance(stored, LocalBytes):
        if message.begin + message.size > stored.current_size():
            raise ValueError("the file has become shorter since it was opened")
        return pa.py_buffer(stored.mapped()[message.begin : message.begin + message.size])
    return pa.py_buffer(read_exactly(stored, message.begin, message.size))


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
    """Walk through shards and note where each batch lies.

    Raises:
        DataError: one is damaged, or has other columns than the first.
    """
    opened = OpenShards(shards)
    schema: pa.Schema | None = None
    counts: list[int] = []
    shard_of: list[int] = []
    number_of: list[int] = []
    found: list[Message] = []
    with_dictionaries: set[int] = set()
    for shard, where in enumerate(shards):
        try:
            messages = messages_of(opened[shard])
            head = pa.ipc.read_message(pa.BufferReader(_bytes_of(opened[shard], messages[0])))
            own = pa.ipc.read_schema(head)
        except (OSError, ValueError, pa.ArrowException, MemoryError) as error:
            raise DataError(f"{where.where} cannot be read as Arrow: {error}") from error
        schema = own if schema is None else schema
        if not own.equals(schema):
            raise DataError(f"{where.where} has other columns than {shards[0].where}")
        batches = [m for m in messages if m.kind == BATCH and m.num_rows]
        counts += [message.num_rows for message in batches]
        shard_of += [shard] * len(batches)
        number_of += range(len(batches))
        found += batches
        if any(message.kind == DICTIONARY for message in messages):
            with_dictionaries.add(shard)
    if schema is None:
        raise DataError("there are no shards")
    total = sum(message.size for message in found)
    starts = np.cumsum([0, *counts], dtype=np.int64)
    numbers = np.array(shard_of, np.int64), np.array(number_of, np.int64)
    places = tuple(shards)
    return ArrowBatches(
        places, schema, starts, *numbers, tuple(found), frozenset(with_dictionaries), total
    )
