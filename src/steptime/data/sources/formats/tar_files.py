"""WebDataset and other tar archives: files of one name before the first dot are one sample.

The headers are read once, and nothing is unpickled (`.pyd`, `.pickle` stay bytes). Source: the
WebDataset naming convention.
"""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from steptime.data.source import Column, Values
from steptime.data.sources.array_header import parse_array
from steptime.data.sources.file_object import WalkedFile
from steptime.data.sources.record_shards import stack
from steptime.data.sources.shards import OpenShards, find_shards
from steptime.data.stored_bytes import (
    DamagedBytesError,
    StoredPlace,
    by_shard,
    read_ranges,
)
from steptime.errors import DataError

MAX_COLUMNS = 256
"""Endings of files; an archive with more is no set of samples."""
INTEGERS = {"cls", "cls2", "index", "inx", "id", "count"}
MAX_CLASS_BYTES = 32
TEXTS = {"txt", "text", "transcript", "json"}
"""Endings and what WebDataset makes of them (webdataset.autodecode)."""


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
        if len(data) > MAX_CLASS_BYTES:
            raise DamagedBytesError(f"a class is a whole number, and has {len(data):,} bytes")
        return int(bytes(data))
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
            stored = shard.stored()
            for member in members_of(WalkedFile(stored), stored.size):
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
                parts.append((total - 1, number, member.offset_data, member.size))
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
    try:
        tarfile.TarInfo.frombuf(start[: tarfile.BLOCKSIZE], "utf-8", "surrogateescape")
    except tarfile.HeaderError:
        return False
    return True


def members_of(file: WalkedFile, size: int) -> Iterator[tarfile.TarInfo]:
    """Yield the regular files of an archive of `size` bytes.

    Raises:
        DamagedBytesError: a header is damaged, or the archive is cut off.
    """
    at = 0
    try:
        archive = tarfile.TarFile(fileobj=file, encoding="utf-8")
        while not _is_end(file, at):
            member = tarfile.TarInfo.fromtarfile(archive)  # `next` takes damage for the end
            at = archive.offset
            if member.size < 0 or member.issparse():
                what = "is a sparse file" if member.issparse() else "has a size below zero"
                raise DamagedBytesError(f"{member.name} {what}")
            if member.isreg():
                if member.offset_data + member.size > size:
                    raise DamagedBytesError("it is cut off")
                yield member
    except tarfile.TarError as error:
        raise DamagedBytesError(f"the header at offset {at:,} is damaged: {error}") from error


def _is_end(file: WalkedFile, at: int) -> bool:
    file.seek(at)
    block = file.read(tarfile.BLOCKSIZE)
    file.seek(at)
    return block == bytes(tarfile.BLOCKSIZE)
