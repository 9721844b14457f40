"""Parquet: a file, or a folder of shards such as the Hugging Face hub has.

A sample costs the decoding of its row group; the groups decoded last are kept.
"""

from __future__ import annotations

from threading import Lock
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from steptime.data.source import Column, Values
from steptime.data.sources.decoded_groups import CACHE_BYTES, MAX_GROUP_BYTES, DecodedGroups
from steptime.data.sources.file_object import file_object
from steptime.data.sources.formats.arrow_values import columns_of, values_of
from steptime.data.sources.shards import OpenShards, find_shards
from steptime.data.stored_bytes import DamagedBytesError, StoredPlace, by_shard
from steptime.errors import DataError


class RowGroups(NamedTuple):
    """All row groups of all shards."""

    shards: tuple[StoredPlace, ...]
    starts: NDArray[np.int64]
    """(num_groups + 1,) the first sample of each."""
    shard_of: NDArray[np.int64]
    group_of: NDArray[np.int64]
    """The group's number in its shard."""
    num_bytes: int


class ParquetReader:
    """See the module."""

    name = "Parquet"

    def __init__(self, groups: RowGroups, wanted: tuple[str, ...] | None, cache_bytes: int) -> None:
        self._groups = groups
        self._shards = OpenShards(groups.shards)
        self._cache: DecodedGroups[pa.Table] = DecodedGroups(cache_bytes)
        self._files: dict[int, tuple[pq.ParquetFile, Lock]] = {}
        self._opening = Lock()
        self._wanted = wanted
        self._schema = self._file(0)[0].schema_arrow
        self.columns: tuple[Column, ...] = columns_of(self._schema, self._shards.name(0), wanted)
        self.num_bytes = groups.num_bytes

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(self._groups.starts[-1])

    def read(self, indices: NDArray[np.int64]) -> dict[str, Values]:
        """Return rows; those of one row group are decoded together."""
        parts, order = [], []
        for group, positions, rows in by_shard(indices, self._groups.starts):
            parts.append(self._group(group).take(pa.array(rows)))
            order.append(positions)
        return values_of(_in_order(parts, order), self.columns)

    def _group(self, group: int) -> pa.Table:
        shard, number = int(self._groups.shard_of[group]), int(self._groups.group_of[group])
        return self._cache.get((shard, number), lambda: self._decode(shard, number))

    def _decode(self, shard: int, number: int) -> tuple[pa.Table, int]:
        file, lock = self._file(shard)
        with lock:  # one reader of Arrow is not for two threads
            claimed = file.metadata.row_group(number).total_byte_size
            if not 0 <= claimed <= MAX_GROUP_BYTES:
                raise DamagedBytesError(f"row group {number} should unpack to {claimed:,} bytes")
            wanted = None if self._wanted is None else list(self._wanted)
            table = file.read_row_group(number, columns=wanted, use_threads=False)
        table.validate(full=True)
        expected = self._schema if wanted is None else None
        if expected is not None and not table.schema.equals(expected):
            raise DamagedBytesError(f"its columns are not those of {self._shards.name(0)}")
        return table.combine_chunks(), table.nbytes

    def _file(self, shard: int) -> tuple[pq.ParquetFile, Lock]:
        with self._opening:
            if shard not in self._files:
                if len(self._files) >= 64:
                    self._files.pop(next(iter(self._files)))
                self._files[shard] = open_file(self._shards, shard), Lock()
            return self._files[shard]

    def place_of(self, index: int) -> str:
        """Return file, row group and row."""
        groups = self._groups
        group = int(np.searchsorted(groups.starts, index, side="right")) - 1
        shard = groups.shard_of[group]
        first = groups.starts[np.searchsorted(groups.shard_of, shard)]
        row = index - int(first)
        return f"{self._shards.name(int(shard))}, row {row} (row group {groups.group_of[group]})"

    def index(self) -> RowGroups:
        """Return the row groups, which are read from the end of each shard."""
        return self._groups

    def close(self) -> None:
        """Close the files."""
        self._cache.clear()
        self._files.clear()
        self._shards.close()


def open_parquet(
    place: StoredPlace,
    index: RowGroups | None,
    *,
    split: str | None = None,
    columns: tuple[str, ...] | None = None,
    cache_bytes: int = CACHE_BYTES,
) -> ParquetReader:
    """Open a file or a folder of shards.

    Args:
        place: the file or folder.
        index: the row groups, where they are known.
        split: the split to take, where names of shards tell several.
        columns: the columns to read; None for all.
        cache_bytes: of decoded row groups that are kept [bytes].
    """
    groups = _find_groups(place, split) if index is None else index
    return ParquetReader(groups, None if columns is None else tuple(columns), cache_bytes)


def open_file(shards: OpenShards, shard: int) -> pq.ParquetFile:
    """Open one shard, with its checksums of pages checked where it has some."""
    return pq.ParquetFile(file_object(shards[shard]), page_checksum_verification=True)


def _find_groups(place: StoredPlace, split: str | None) -> RowGroups:
    shards = tuple(find_shards(place, split, (".parquet", ".pq")))
    opened = OpenShards(shards)
    counts, shard_of, group_of, num_bytes = [], [], [], 0
    for shard, where in enumerate(shards):
        try:
            metadata = open_file(opened, shard).metadata
            sizes = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
        except (OSError, ValueError, pa.ArrowException, MemoryError) as error:
            raise DataError(f"{where.where} cannot be read as Parquet: {error}") from error
        for number, group in enumerate(sizes):
            if group.num_rows < 0:
                raise DataError(f"{where.where}: row group {number} has {group.num_rows} rows")
            if group.num_rows:
                counts.append(group.num_rows)
                shard_of.append(shard)
                group_of.append(number)
        num_bytes += opened[shard].size
    starts = np.cumsum([0, *counts])
    return RowGroups(shards, starts, np.array(shard_of), np.array(group_of), num_bytes)


def _in_order(parts: list[pa.Table], order: list[NDArray[np.int64]]) -> pa.Table:
    if len(parts) == 1:
        return parts[0]
    back = np.argsort(np.concatenate(order), kind="stable")
    return pa.concat_tables(parts).take(pa.array(back))
