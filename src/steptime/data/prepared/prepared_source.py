"""Reads prepared data: whole batches out of mapped files.

In: a prepared folder. Out: a `SampleSource`. It maps the files and keeps no samples; the page
cache does that, and gives the memory back when somebody needs it. `damage` reads everything and
compares checksums; reading samples compares none, because that costs more than reading them.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import ipc

from steptime.data.prepared.column_files import SHAPES, in_hexadecimal
from steptime.data.prepared.layout import (
    CHECKSUMS,
    PreparedColumn,
    PreparedIndex,
    Shard,
    read_index,
)
from steptime.data.prepared.sample_checksums import sample_checksums
from steptime.data.source import Column, Values
from steptime.errors import DataError

_MAX_MAPS = 4096
"""Of Arrow files that are mapped at once; Linux allows 65,530 maps in a process."""
_CHECK_ROWS = 1024


class Damage(NamedTuple):
    """A sample that is not what was written."""

    number: int
    place: str


class _Varying(NamedTuple):
    """A varying column of one shard: R offsets and one, and the bytes that they point into."""

    offsets: list[int]
    data: memoryview
    is_valid: Any | None
    """(R,) booleans; None where every sample has a value."""
    shapes: Any | None
    """(R, ndim) of arrays; None for text and bytes."""


class PreparedSource:
    """A prepared folder; many threads may read it at once."""

    name = "prepared data"
    reads_in_flight = 0
    """It is mapped: nothing is gained by asking before it is needed."""

    def __init__(self, folder: Path, layout: PreparedIndex) -> None:
        self.folder, self.layout = folder, layout
        self._starts = np.array([shard.first for shard in layout.shards], np.int64)
        self._fixed: dict[str, np.ndarray[Any, Any]] = {}
        for column in layout.columns:
            if column.file is not None:
                self._fixed[column.name] = self._map(column)
        self._varying = [column for column in layout.columns if column.file is None]
        self._maps: dict[int, dict[str, _Varying]] = {}

    @property
    def columns(self) -> tuple[Column, ...]:
        """What each sample has."""
        return tuple(column.as_column() for column in self.layout.columns)

    @property
    def num_bytes(self) -> int:
        """Bytes of all samples as they are stored."""
        return sum(size for shard in self.layout.shards for size in shard.sizes.values())

    @property
    def fingerprint(self) -> str:
        """A word that changes with the data, by the checksums of all shards."""
        told = [sorted(shard.checksums.items()) for shard in self.layout.shards]
        return in_hexadecimal(zlib.crc32(repr(told).encode("utf-8", "surrogateescape")))

    def __len__(self) -> int:
        """Return the number of samples."""
        return self.layout.num_samples

    def __reduce__(self) -> tuple[Any, ...]:
        return open_prepared, (self.folder,)

    def read(self, indices: Sequence[int] | NDArray[np.int64]) -> Mapping[str, Values]:
        """Return the samples with these numbers, in this order, by column.

        Raises:
            DataError: a file is damaged; it names the shard.
            ValueError: a number is not that of a sample.
        """
        rows = np.asarray(indices, np.int64).reshape(-1)
        if len(rows) and (rows.min() < 0 or rows.max() >= len(self)):
            raise ValueError(
                f"samples have the numbers 0 to {len(self) - 1}, got {rows.min()} to {rows.max()}"
            )
        found: dict[str, Any] = {}
        is_in_order = len(rows) > 0 and bool((np.diff(rows) == 1).all())
        for column in self.layout.columns:
            if column.file is None:
                found[column.name] = []
            elif is_in_order:  # a view, without a copy
                found[column.name] = self._fixed[column.name][rows[0] : rows[-1] + 1]
            else:
                found[column.name] = self._fixed[column.name].take(rows, axis=0)
        if self._varying:
            self._read_varying(rows, found)
        return found

    def _read_varying(self, rows: np.ndarray[Any, Any], found: dict[str, Any]) -> None:
        shards = (np.searchsorted(self._starts, rows, side="right") - 1).tolist()
        inner = (rows - self._starts[shards]).tolist() if len(rows) else []
        for column in self._varying:
            values = found[column.name]
            for shard, row in zip(shards, inner, strict=True):
                mapped = self._maps.get(shard) or self._open_shard(shard)
                values.append(_value(column, mapped[column.name], row))

    def _open_shard(self, number: int) -> dict[str, _Varying]:
        shard = self.layout.shards[number]
        path = self.folder / str(shard.arrow)
        try:
            batch = ipc.open_file(pa.memory_map(os.fspath(path))).get_batch(0)
            if batch.num_rows != shard.rows:
                raise ValueError(f"it has {batch.num_rows} samples, not {shard.rows}")
            found = {column.name: _varying(batch, column) for column in self._varying}
        except (OSError, ValueError, LookupError, pa.ArrowException) as error:
            raise DataError(f"{path} (shard {number}) is damaged: {error}") from error
        while len(self._maps) >= _MAX_MAPS:
            self._maps.pop(next(iter(self._maps)), None)
        self._maps[number] = found
        return found

    def place_of(self, index: int) -> str:
        """Return where a sample lies: the file of its shard, and the row in it."""
        number = int(np.searchsorted(self._starts, index, side="right")) - 1
        shard = self.layout.shards[number]
        where = shard.arrow or next(c.file for c in self.layout.columns if c.file is not None)
        return f"{self.folder / str(where)}, shard {number}, row {index - shard.first}"

    def checksums(self) -> np.ndarray[Any, Any]:
        """Return the CRC-32 of all samples as they were when they were written, shape (N,)."""
        stored = PreparedColumn(name=CHECKSUMS, kind="number", dtype="uint32", shape=(),
                                file=CHECKSUMS)  # fmt: skip
        return self._map(stored)

    def damage(self, shard: Shard | None = None) -> Iterator[Damage]:
        """Yield the samples that are not what was written, of one shard or of all."""
        expected = self.checksums()
        for one in self.layout.shards if shard is None else (shard,):
            for first in range(one.first, one.first + one.rows, _CHECK_ROWS):
                rows = np.arange(first, min(first + _CHECK_ROWS, one.first + one.rows))
                found = sample_checksums(self.layout.columns, self.read(rows))
                for index in rows[found != expected[rows]].tolist():
                    yield Damage(index, self.place_of(index))

    def index(self) -> None:
        """Return nothing: opening again is quick."""

    def close(self) -> None:
        """Give back the maps; the source reads nothing more."""
        self._maps.clear()
        self._fixed.clear()

    def _map(self, column: PreparedColumn) -> np.ndarray[Any, Any]:
        path = self.folder / str(column.file)
        try:
            mapped = np.load(path, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise DataError(f"{path} is damaged: {error}") from error
        expected = (len(self), *(column.shape or ()))
        if mapped.shape != expected or mapped.dtype != np.dtype(column.dtype):
            raise DataError(
                f"{path} is damaged: it holds {mapped.dtype} {mapped.shape}, and the index says "
                f"{column.dtype} {expected}."
            )
        plain: np.ndarray[Any, Any] = mapped.view(np.ndarray)  # indexing a memmap object costs more
        return plain


def open_prepared(folder: Path | str) -> PreparedSource:
    """Open a prepared folder.

    Raises:
        DataError: it is not there, damaged, or of a newer version.
    """
    return PreparedSource(Path(folder), read_index(Path(folder)))


def _varying(batch: Any, column: PreparedColumn) -> _Varying:
    array = batch.column(column.name)
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, "<i8", count=len(array) + 1)
    view = memoryview(b"" if data is None else data)
    if ends[0] < 0 or ends[-1] > len(view) or (np.diff(ends) < 0).any():
        raise ValueError(f"the offsets of {column.name} are damaged")
    is_valid = array.is_valid().to_numpy(zero_copy_only=False) if array.null_count else None
    shapes = None
    if column.dtype is not None:
        listed = batch.column(SHAPES.format(name=column.name))
        shapes = listed.values.to_numpy().reshape(len(array), -1)
    return _Varying(ends.tolist(), view, is_valid, shapes)


def _value(column: PreparedColumn, varying: _Varying, row: int) -> Any:
    if varying.is_valid is not None and not varying.is_valid[row]:
        return None
    data = bytes(varying.data[varying.offsets[row] : varying.offsets[row + 1]])
    if column.kind == "text":
        return data.decode("utf-8", "surrogateescape")
    if column.dtype is None:
        return data
    shape = tuple((varying.shapes if varying.shapes is not None else [()])[row])
    return np.frombuffer(bytearray(data), np.dtype(column.dtype)).reshape(shape)
