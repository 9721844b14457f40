"""Arrays of numpy: a `.npy` file, a folder of them, or an `.npz` archive. Nothing is unpickled.

The first axis counts the samples. In a folder, files whose names differ by their digits alone
are shards of one column (`x_000.npy`, `x_001.npy`), and other names are columns of their own.
"""

from __future__ import annotations

import io
import math
import os
import re
import zipfile
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from steptime.data.source import Column, Values
from steptime.data.sources.array_header import MAX_HEADER_BYTES, parse_header
from steptime.data.sources.checked_source import FAILURES, sentence
from steptime.data.sources.file_object import OffsetFile
from steptime.data.stored_bytes import (
    BytesInMemory,
    DamagedBytesError,
    LocalBytes,
    StoredBytes,
    StoredPlace,
    by_shard,
    read_exactly,
    read_ranges,
)
from steptime.errors import DataError

MAX_DEFLATE_RATIO = 1032
"""Deflate cannot make more of a byte (RFC 1951: 258 bytes from two bits)."""
MAX_UNPACKED_BYTES = 16 << 30
"""Of a compressed member of an archive, which is unpacked into memory."""


class ArrayHeader(NamedTuple):
    """What a `.npy` header says, checked against the bytes behind it."""

    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]
    begin: int
    """Where the values begin in the file [bytes]."""

    @property
    def row_bytes(self) -> int:
        """Bytes of one sample."""
        return math.prod(self.shape[1:]) * self.dtype.itemsize


class ArrayShard:
    """The rows of one array in a file: mapped where the file is local, else read by ranges."""

    def __init__(self, stored: StoredBytes, header: ArrayHeader) -> None:
        self._stored = stored
        self.header = header
        self._mapped = None
        if isinstance(stored, LocalBytes) and header.row_bytes and header.shape[0]:
            count = math.prod(header.shape)
            flat = np.frombuffer(stored.mapped(), header.dtype, count, header.begin)
            self._mapped = flat.reshape(header.shape)

    def read(self, rows: NDArray[np.int64]) -> NDArray[np.generic]:
        """Return rows of the array: neighbours as a view to read alone, others copied."""
        header = self.header
        if isinstance(self._stored, LocalBytes) and self._mapped is not None:
            if self._stored.current_size() < self._stored.size:
                raise DamagedBytesError("the file has become shorter since it was opened")
            first, count = int(rows[0]), len(rows)
            if int(rows[-1]) - first == count - 1 and (np.diff(rows) == 1).all():
                return self._mapped[first : first + count]
            return np.take(self._mapped, rows, axis=0)
        begins = [header.begin + row * header.row_bytes for row in rows.tolist()]
        parts = read_ranges(self._stored, begins, [header.row_bytes] * len(begins))
        values = np.frombuffer(b"".join(parts), header.dtype)
        return values.reshape(len(begins), *header.shape[1:])


class MemoryShard:
    """The rows of an array that had to be unpacked."""

    def __init__(self, values: NDArray[np.generic]) -> None:
        self._values = values

    def read(self, rows: NDArray[np.int64]) -> NDArray[np.generic]:
        """Return rows of the array, copied."""
        return np.take(self._values, rows, axis=0)


class ArrayColumn(NamedTuple):
    """The shards of one column."""

    column: Column
    starts: NDArray[np.int64]
    shards: list[ArrayShard | MemoryShard]
    names: list[str]
    num_bytes: int

    def read(self, indices: NDArray[np.int64]) -> Values:
        """Return (B, *shape) values, or a list of texts."""
        parts = [
            (positions, self.shards[shard].read(rows))
            for shard, positions, rows in by_shard(indices, self.starts)
        ]
        if len(parts) == 1 and len(self.shards) == 1:
            values = parts[0][1]
        else:
            values = np.empty((len(indices), *parts[0][1].shape[1:]), parts[0][1].dtype)
            for positions, part in parts:
                values[positions] = part
        if self.column.kind in ("text", "bytes"):
            texts: list[Any] = values.tolist()
            return texts
        return values


class NpyReader:
    """See the module."""

    reads_in_flight = 0

    def __init__(self, name: str, columns: list[ArrayColumn], stored: list[StoredBytes]) -> None:
        self.name = name
        self._arrays = columns
        self._stored = stored
        self.columns = tuple(array.column for array in columns)
        self.num_bytes = sum(array.num_bytes for array in columns)

    def __len__(self) -> int:
        """Return the number of samples."""
        return int(self._arrays[0].starts[-1])

    def read(self, indices: NDArray[np.int64]) -> dict[str, Values]:
        """Return rows of all arrays."""
        return {array.column.name: array.read(indices) for array in self._arrays}

    def place_of(self, index: int) -> str:
        """Return file and row."""
        array = self._arrays[0]
        shard = int(np.searchsorted(array.starts, index, side="right")) - 1
        return f"{array.names[shard]}, row {index - int(array.starts[shard])}"

    def index(self) -> None:
        """Headers are read in a moment."""

    def close(self) -> None:
        """Close the files."""
        for stored in self._stored:
            stored.close()


def open_npy(place: StoredPlace, index: None) -> NpyReader:
    """Open one `.npy` file, or a folder of them."""
    del index
    groups: dict[str, list[StoredPlace]] = {}
    if place.files.is_folder(place.where):
        names = sorted(n for n, _ in place.files.walk(place.where) if n.endswith(b".npy"))
        for name in names:
            text = os.fsdecode(name)
            groups.setdefault(column_name(text), []).append(place.inside(text))
    else:
        groups["data"] = [place]
    if not groups:
        raise DataError(f"{place.where} has no file that ends with .npy")
    stored: list[StoredBytes] = []
    columns = [_open_column(name, shards, stored) for name, shards in groups.items()]
    _check_lengths(place, columns)
    return NpyReader("npy", columns, stored)


def column_name(name: str) -> str:
    """Return the column that a file's name tells: the name without suffix and digits."""
    stem = name.removesuffix(".npy")
    bare = re.sub(r"[-_.]?\d+(?:[-_]?of[-_]?\d+)?$", "", stem)
    return bare.replace("/", ".") or "data"


def _open_column(name: str, places: list[StoredPlace], stored: list[StoredBytes]) -> ArrayColumn:
    shards = []
    for place in places:
        file = place.stored()
        stored.append(file)
        with_place = f"{place.where} cannot be read"
        shards.append(ArrayShard(file, read_header(file, 0, file.size, with_place)))
    headers = [shard.header for shard in shards]
    for place, header in zip(places, headers, strict=True):
        if header.dtype != headers[0].dtype or header.shape[1:] != headers[0].shape[1:]:
            was = f"{header.dtype} {header.shape[1:]}, and {places[0].where} has"
            expected = f"{headers[0].dtype} {headers[0].shape[1:]}"
            raise DataError(f"{place.where} has samples of {was} {expected}")
    starts = np.cumsum([0, *(header.shape[0] for header in headers)])
    num_bytes = sum(header.shape[0] * header.row_bytes for header in headers)
    names = [place.where for place in places]
    return ArrayColumn(column_of(name, headers[0]), starts, [*shards], names, num_bytes)


def column_of(name: str, header: ArrayHeader) -> Column:
    """Return the column that an array is."""
    shape = header.shape[1:]
    if header.dtype.kind in "SU" and not shape:
        return Column(name, "text" if header.dtype.kind == "U" else "bytes")
    return Column(name, "array" if shape else "number", header.dtype.str.lstrip("|=<"), shape)


def _check_lengths(place: StoredPlace, columns: list[ArrayColumn]) -> None:
    lengths = {array.column.name: int(array.starts[-1]) for array in columns}
    if len(set(lengths.values())) > 1:
        said = ", ".join(f"{name} has {length:,}" for name, length in lengths.items())
        raise DataError(
            f"the arrays of {place.where} have different numbers of samples: {said}",
            hint="Open one file, or the files as they are: format='folder', kind='files'.",
        )


def read_header(stored: StoredBytes, begin: int, end: int, message: str) -> ArrayHeader:
    """Read and check the header of an array that lies at `begin` to `end` of a file.

    Raises:
        DataError: it is damaged, holds objects, or says more than the file has.
    """
    head = read_exactly(stored, begin, min(max(end - begin, 0), MAX_HEADER_BYTES))
    try:
        dtype, shape, is_fortran, head_bytes = parse_header(head)
    except (*FAILURES, SyntaxError) as error:
        raise DataError(f"{message}: its header is damaged ({sentence(error)})") from error
    if dtype.hasobject:
        raise DataError(f"{message}: it holds pickled objects, which are never unpickled")
    if dtype.names or not shape:
        what = "a structure with fields" if dtype.names else "a single number"
        raise DataError(f"{message}: it holds {what}, not an array of samples")
    if is_fortran and len(shape) > 1:
        raise DataError(
            f"{message}: it has Fortran order, in which no sample lies in one piece",
            hint="Save it again with numpy.ascontiguousarray.",
        )
    header = ArrayHeader(dtype, shape, begin + head_bytes)
    expected = math.prod(shape) * dtype.itemsize
    if header.begin + expected > end:
        has = max(end - header.begin, 0)
        raise DataError(f"{message}: it should have {expected:,} bytes of values, and has {has:,}")
    return header


def open_npz(place: StoredPlace, index: None) -> NpyReader:
    """Open an archive: members stored as they are are read in place, others are unpacked."""
    del index
    stored = place.stored()
    columns: list[ArrayColumn] = []
    try:
        with zipfile.ZipFile(io.BufferedReader(OffsetFile(stored))) as archive:
            members = [m for m in archive.infolist() if m.filename.endswith(".npy")]
            columns += [_open_member(place, stored, archive, member) for member in members]
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:
        raise DataError(f"{place.where} is damaged: {error}") from error
    if not columns:
        raise DataError(f"{place.where} has no array in it")
    _check_lengths(place, columns)
    return NpyReader("npz", columns, [stored])


def _open_member(
    place: StoredPlace, stored: StoredBytes, archive: zipfile.ZipFile, info: zipfile.ZipInfo
) -> ArrayColumn:
    name = info.filename.removesuffix(".npy")
    where = f"{place.where}, array {name}"
    message = f"{where} cannot be read"
    shard: ArrayShard | MemoryShard
    if info.compress_type == zipfile.ZIP_STORED:
        local = read_exactly(stored, info.header_offset, 30)
        lengths = int.from_bytes(local[26:28], "little") + int.from_bytes(local[28:30], "little")
        begin = info.header_offset + 30 + lengths
        header = read_header(stored, begin, min(begin + info.file_size, stored.size), message)
        shard = ArrayShard(stored, header)
    else:
        header, shard = _unpacked(archive, info, message)
    starts = np.array([0, header.shape[0]])
    size = header.shape[0] * header.row_bytes
    return ArrayColumn(column_of(name, header), starts, [shard], [where], size)


def _unpacked(
    archive: zipfile.ZipFile, info: zipfile.ZipInfo, message: str
) -> tuple[ArrayHeader, MemoryShard]:
    possible = min(info.compress_size * MAX_DEFLATE_RATIO + 1024, MAX_UNPACKED_BYTES)
    if info.compress_type != zipfile.ZIP_DEFLATED or info.file_size > possible:
        what = f"{info.file_size:,} bytes from {info.compress_size:,} by method"
        raise DataError(f"{message}: it should unpack to {what} {info.compress_type}")
    data = BytesInMemory(archive.read(info))  # its CRC is checked
    header = read_header(data, 0, data.size, message)
    values = np.frombuffer(data.data, header.dtype, math.prod(header.shape), header.begin)
    return header, MemoryShard(values.reshape(header.shape))
