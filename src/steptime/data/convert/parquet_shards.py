"""Writes Parquet files, to share data: one file a shard, read by every tool that reads tables.

An array becomes a list of its numbers, in C order; the field's metadata has its shape, or, where
shapes vary, the column `NAME.shape` does.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from steptime.data.convert.record_files import checksum_of, settle_file
from steptime.data.convert.shard_writer import Batch, Settle
from steptime.data.prepared.column_files import SHAPES, file_checksum
from steptime.data.prepared.layout import PreparedColumn, Shard
from steptime.data.prepared.sample_checksums import sample_checksums
from steptime.errors import DataError

_ROW_GROUP = 1024
"""Rows; a reader of one row reads a group."""


class ParquetShards:
    """Writes into a folder; a `ShardWriter`."""

    def __init__(self, folder: Path, columns: tuple[PreparedColumn, ...], num_shards: int) -> None:
        self._folder, self._columns, self._num_shards = folder, columns, num_shards
        self._schema = pa.schema([field for c in columns for field in _fields(c)])

    def write(self, number: int, first: int, batches: Iterable[Batch]) -> Settle:
        """Write a shard, and return what has it on the disk."""
        path, crcs = self._path(number), list[int]()
        half = path.with_name(path.name + ".half")
        with (
            open(half, "wb") as file,
            parquet.ParquetWriter(file, self._schema, compression="none") as writer,
        ):
            for batch in batches:
                writer.write_table(self._table(batch), row_group_size=_ROW_GROUP)
                crcs += sample_checksums(self._columns, batch).tolist()
        return partial(settle_file, half, path, first, crcs)

    def _table(self, batch: Batch) -> Any:
        arrays = [array for c in self._columns for array in _arrays(c, batch[c.name])]
        return pa.Table.from_arrays(arrays, schema=self._schema)

    def damaged(self, number: int, shard: Shard) -> str | None:
        """Read a shard back from the disk; return what is not as written, None if all is."""
        path = self._path(number)
        if file_checksum(path) != (shard.checksums[path.name], shard.sizes[path.name]):
            return f"{path}: its checksum is another one"
        crcs: list[int] = []
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=_ROW_GROUP):
                values = {c.name: _values(c, batch) for c in self._columns}
                crcs += sample_checksums(self._columns, values).tolist()
        if len(crcs) != shard.rows or checksum_of(crcs) != shard.samples:
            return f"{path}: its {len(crcs)} samples are not the {shard.rows} of the source"
        return None

    def close(self) -> None:
        """Close nothing: no file stays open."""

    def _path(self, number: int) -> Path:
        return self._folder / f"part-{number:05}-of-{self._num_shards:05}.parquet"


def _fields(column: PreparedColumn) -> list[Any]:
    if column.dtype is None:
        kind = pa.string() if column.kind == "text" else pa.binary()
        return [pa.field(column.name, kind)]
    number = pa.from_numpy_dtype(np.dtype(column.dtype))
    if column.shape == ():
        return [pa.field(column.name, number)]
    if column.shape is not None:
        told = {"shape": ",".join(map(str, column.shape))}
        return [pa.field(column.name, pa.list_(number), metadata=told)]
    shapes = pa.field(SHAPES.format(name=column.name), pa.list_(pa.int64()))
    return [pa.field(column.name, pa.list_(number)), shapes]


def _arrays(column: PreparedColumn, values: Any) -> list[Any]:
    (first, *shapes) = _fields(column)
    if column.dtype is None:
        try:
            return [pa.array(list(values), first.type)]
        except (pa.ArrowInvalid, UnicodeEncodeError) as error:
            raise DataError(f"column {column.name} is no Unicode text: {error}") from error
    if column.shape == ():
        return [pa.array(np.asarray(values, column.dtype), first.type)]
    rows = [np.ascontiguousarray(value, column.dtype) for value in values]
    flat = np.concatenate([row.reshape(-1) for row in rows]) if rows else np.empty(0, column.dtype)
    ends = np.cumsum([0, *(row.size for row in rows)])
    found = [pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pa.array(flat))]
    if shapes:
        found.append(pa.array([np.shape(value) for value in values], shapes[0].type))
    return found


def _values(column: PreparedColumn, batch: Any) -> Any:
    array = batch.column(column.name)
    if column.dtype is None:
        return array.to_pylist()
    if column.shape == ():
        return array.to_numpy(zero_copy_only=False)
    flat = array.values.to_numpy(zero_copy_only=False)
    ends = array.offsets.to_numpy()
    rows = [flat[ends[i] : ends[i + 1]] for i in range(len(array))]
    if column.shape is not None:
        shape = column.shape
        return np.array([row.reshape(shape) for row in rows], column.dtype)
    shapes = batch.column(SHAPES.format(name=column.name)).to_pylist()
    return [row.reshape(shape) for row, shape in zip(rows, shapes, strict=True)]
