"""WebDataset and other tar archives: files of one name before the first dot are one sample.

The headers are read once, in our own words: no shell, no process, and nothing is unpickled
(`.pyd`, `.pickle` stay bytes). Source: POSIX.1-2001 pax, "ustar Interchange Format"; the GNU tar
manual, "Basic Tar Format"; the WebDataset naming convention.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from steptime.data.source import Column, Values
from steptime.data.sources.array_header import parse_array
from steptime.data.sources.record_shards import RecordWalk, stack
from steptime.data.sources.shards import OpenShards, find_shards
from steptime.data.stored_bytes import (
    DamagedBytesError,
    StoredBytes,
    StoredPlace,
    by_shard,
    read_ranges,
)
from steptime.errors import DataError

BLOCK = 512
MAX_EXTENDED_BYTES = 1 << 20
"""Of a long name or a pax header; paths have 4,096 bytes."""
MAX_COLUMNS = 256
"""Endings of files; an archive with more is no set of samples."""
INTEGERS = {"cls", "cls2", "index", "inx", "id", "count"}
TEXTS = {"txt", "text", "transcript", "json"}
"""Endings and what WebDataset makes of them (webdataset.autodecode)."""


class TarMember(NamedTuple):
    """One file in an archive."""

    name: str
    offset: int
    size: int


class TarIndex(NamedTuple):
    """Where the parts of each sample lie."""

    shards: tuple[StoredPlace, ...]
    starts: NDArray[np.int64]
    endings: tuple[str, ...]
    offsets: NDArray[np.int64]
    """(num_samples, num_endings) in the shard [bytes]; -1 where a sample has no such part."""
    sizes: NDArray[np.int64]
    keys: tuple[NDArray[np.int64], bytes]
    """Where each name begins, and all of them in one piece."""

    def key(self, row: int) -> bytes:
        """Return the name of a sample."""
        begin, end = self.keys[0][row : row + 2].tolist()
        return self.keys[1][begin:end]


class TarReader:
    """See the module."""

    name = "WebDataset tar"

    def __init__(self, index: TarIndex, *, with_names: bool) -> None:
        self._index = index
        self._with_names = with_names
        self._shards = OpenShards(index.shards)
        self.num_bytes = int(index.sizes[index.offsets >= 0].sum())
        own = tuple(_column(ending) for ending in index.endings)
        self.columns = (*own, Column("name", "bytes")) if with_names else own

    def __len__(self) -> int:
        """Return the number of samples."""
        return int(self._index.starts[-1])

    def read(self, indices: NDArray[np.int64]) -> dict[str, Values]:
        """Read the parts of samples; a part that a sample has not is None."""
        values: dict[str, Values] = {}
        for number, column in enumerate(self.columns[: len(self._index.endings)]):
            values[column.name] = stack(self._part(indices, number), column)
        if self._with_names:
            values["name"] = [self._index.key(row) for row in indices.tolist()]
        return values

    def _part(self, indices: NDArray[np.int64], number: int) -> list[Any]:
        ending, index = self._index.endings[number], self._index
        parts: list[Any] = [None] * len(indices)
        for shard, positions, rows in by_shard(indices, index.starts):
            at = rows + index.starts[shard]
            there = np.flatnonzero(index.offsets[at, number] >= 0)
            offsets, sizes = index.offsets[at[there], number], index.sizes[at[there], number]
            read = read_ranges(self._shards[shard], offsets.tolist(), sizes.tolist())
            for position, data in zip(positions[there].tolist(), read, strict=True):
                parts[position] = _decoded(ending, data)
        return parts

    def place_of(self, index: int) -> str:
        """Return archive, row and name."""
        shard = int(np.searchsorted(self._index.starts, index, side="right")) - 1
        row = index - int(self._index.starts[shard])
        name = os.fsdecode(self._index.key(index))
        return f"{self._index.shards[shard].where}, row {row} ({name})"

    def index(self) -> TarIndex:
        """Return where all parts lie, which takes a walk through all headers to know."""
        return self._index

    def close(self) -> None:
        """Close the files."""
        self._shards.close()


def open_tar(
    place: StoredPlace, index: TarIndex | None, *, split: str | None = None, names: bool = False
) -> TarReader:
    """Open an archive or a folder of them.

    Args:
        place: the file or folder.
        index: where all parts lie, if that is known.
        split: the split to take, where names of shards tell several.
        names: whether each sample's name is a column as well.
    """
    if index is None:
        index = _find_samples(find_shards(place, split, (".tar",)))
    return TarReader(index, with_names=names)


def _column(ending: str) -> Column:
    last = ending.rpartition(".")[2]
    if last in INTEGERS:
        return Column(ending, "number", "int64", ())
    if last in TEXTS:
        return Column(ending, "text")
    return Column(ending, "array") if last == "npy" else Column(ending, "bytes")


def _decoded(ending: str, data: memoryview) -> object:
    last = ending.rpartition(".")[2]
    if last in INTEGERS:
        return int(bytes(data[:32]))
    if last in TEXTS:
        return str(data, "utf-8")
    return parse_array(bytes(data)) if last == "npy" else bytes(data)


def _find_samples(shards: list[StoredPlace]) -> TarIndex:
    endings: dict[str, int] = {}
    parts: list[tuple[int, int, int, int]] = []  # sample, ending, offset, size
    counts: list[int] = []
    key_ends, keys, total = [0], io.BytesIO(), 0
    for shard in shards:
        first, last = total, None
        try:
            for member in members_of(stored := shard.stored()):
                key, ending = split_name(member.name)
                if not ending:
                    continue
                if key != last:
                    keys.write(os.fsencode(key))
                    key_ends.append(keys.tell())
                    last, total = key, total + 1
                number = endings.setdefault(ending, len(endings))
                if len(endings) > MAX_COLUMNS:
                    raise DamagedBytesError(f"it has files of more than {MAX_COLUMNS} endings")
                parts.append((total - 1, number, member.offset, member.size))
            stored.close()
        except (OSError, ValueError) as error:
            where = f"{shard.where}, row {total - first}"
            raise DataError(f"{where} cannot be read: {error}") from error
        counts.append(total - first)
    table = np.array(parts, np.int64).reshape(-1, 4)
    offsets = np.full((total, len(endings)), -1, np.int64)
    sizes = np.zeros((total, len(endings)), np.int64)
    offsets[table[:, 0], table[:, 1]] = table[:, 2]
    sizes[table[:, 0], table[:, 1]] = table[:, 3]
    if len(table) != (offsets >= 0).sum():
        raise DataError(f"{shards[0].where}: a sample has two files of one ending")
    starts = np.cumsum([0, *counts], dtype=np.int64)
    names = np.array(key_ends, np.int64), keys.getvalue()
    return TarIndex(tuple(shards), starts, tuple(endings), offsets, sizes, names)


def split_name(name: str) -> tuple[str, str]:
    """Return what names a sample, and the ending: `a/b.seg.png` is `a/b` and `seg.png`."""
    folder, slash, file = name.rpartition("/")
    stem, _, ending = file.partition(".")
    return f"{folder}{slash}{stem}", ending.lower()


def is_tar(start: bytes) -> bool:
    """Whether bytes begin with a header of tar whose checksum fits."""
    return len(start) >= BLOCK and any(start[:BLOCK]) and _checksum_fits(start[:BLOCK])


def members_of(stored: StoredBytes) -> Iterator[TarMember]:
    """Yield the regular files of an archive.

    Raises:
        DamagedBytesError: a header is damaged, or the archive is cut off.
    """
    walk, at = RecordWalk(stored), 0
    long_name: str | None = None
    long_size: int | None = None
    while True:
        header = walk.read(at, BLOCK)
        if not any(header):
            return
        if not _checksum_fits(header):
            raise DamagedBytesError(f"the header at offset {at:,} has a wrong checksum")
        size = _number(header[124:136])
        kind = header[156:157]
        begin = at + BLOCK
        if kind in (b"L", b"x"):
            if size > MAX_EXTENDED_BYTES:
                raise DamagedBytesError(f"the name at offset {at:,} should have {size:,} bytes")
            extended = walk.read(begin, size)
            if kind == b"L":
                long_name = os.fsdecode(extended.rstrip(b"\0"))
            else:
                long_name, long_size = _pax(extended, long_name, long_size)
        else:
            is_file = kind in (b"0", b"\0", b"7")
            size = size if long_size is None else long_size
            if is_file:
                if begin + size > stored.size:
                    raise DamagedBytesError("it is cut off")
                yield TarMember(long_name or _name(header), begin, size)
            elif kind not in b"123456gKSVM":
                raise DamagedBytesError(f"the header at offset {at:,} has the type {kind!r}")
            size = size if is_file or kind in b"gKSVM" else 0
            if kind != b"K":
                long_name = long_size = None
        at = begin + -(-size // BLOCK) * BLOCK


def _checksum_fits(header: bytes) -> bool:
    try:
        said = int(header[148:156].split(b"\0")[0].strip() or b"0", 8)
    except ValueError:
        return False
    return said == sum(header[:148]) + 8 * 32 + sum(header[156:])


def _number(field: bytes) -> int:
    if field[0] & 0x80:  # GNU: the number itself, in base 256
        return int.from_bytes(field[1:], "big")
    try:
        return int(field.split(b"\0")[0].strip() or b"0", 8)
    except ValueError as error:
        raise DamagedBytesError("a header has no size") from error


def _name(header: bytes) -> str:
    name = header[:100].split(b"\0")[0]
    if header[257:263] == b"ustar\0" and (prefix := header[345:500].split(b"\0")[0]):
        name = prefix + b"/" + name
    return os.fsdecode(name)


def _pax(data: bytes, name: str | None, size: int | None) -> tuple[str | None, int | None]:
    """Name and size of a pax header: lines of `length keyword=value`."""
    at = 0
    while at < len(data) and data[at : at + 1].isdigit():
        length = int(data[at : at + 12].split(b" ")[0])
        keyword, _, value = data[at : at + length].partition(b" ")[2].partition(b"=")
        if length <= 0 or not value.endswith(b"\n"):
            raise DamagedBytesError("a pax header is damaged")
        if keyword == b"path":
            name = os.fsdecode(value[:-1])
        elif keyword == b"size":
            size = int(value[:-1])
            if size < 0:
                raise DamagedBytesError("a pax header is damaged")
        at += length
    return name, size
