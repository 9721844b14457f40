"""The seam between formats and where bytes lie: a file of a disk, or an object of a store.

In: a place, as text. Out: its bytes, from any offset. Readers of formats know nothing else of a
disk, so that a store (`steptime.data.stores`) needs these two classes and nothing more.
"""

from __future__ import annotations

import mmap
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from steptime.record.regular_file import open_regular

MAX_FILE_BYTES = 1 << 62
"""A shard may be as large as a disk; what is read of it at once is bounded where it is read."""

GAP_BYTES = 4096
"""Neighbours this close are read at once: a page is read from the disk anyway."""
MAX_RUN_BYTES = 8 << 20
"""A run of neighbours ends here, so that a batch needs no more than it holds by much."""


class DamagedBytesError(ValueError):
    """Bytes are not what the format says; whoever knows the row says which it is."""


class StoredBytes(Protocol):
    """One file or object; many threads may read it at once."""

    @property
    def name(self) -> str:
        """Where it lies, for a person."""
        ...

    @property
    def size(self) -> int:
        """Its bytes."""
        ...

    def read_at(self, offset: int, count: int) -> bytes:
        """Return `count` bytes from `offset` on; fewer only where the file ends."""
        ...

    def close(self) -> None:
        """Give it back."""
        ...


class StoredFiles(Protocol):
    """A disk or a store, that can be pickled: files by their place."""

    def is_folder(self, where: str) -> bool | None:
        """Whether a place is a folder (or prefix); None where there is nothing."""
        ...

    def walk(self, where: str) -> Iterator[tuple[bytes, int | None]]:
        """Yield the files below a folder, in any order: name relative to it, and size if known.

        The parts of a name are separated by `/`. What begins with a dot is left out.
        """
        ...

    def open_bytes(self, where: str) -> StoredBytes:
        """Open a file.

        Raises:
            OSError: it is not there, is no regular file, or cannot be read.
        """
        ...

    def path_of(self, where: str) -> str | None:
        """Return the path of a local file, for libraries that open a path alone; else None."""
        ...


class LocalBytes:
    """A file of a disk, read by offset."""

    def __init__(self, path: str) -> None:
        with open_regular(path, max_bytes=MAX_FILE_BYTES) as file:
            self._descriptor: int | None = os.dup(file.fileno())
        self.name = path
        self.size = os.fstat(self._descriptor).st_size
        self._map: memoryview | None = None

    def read_at(self, offset: int, count: int) -> bytes:
        """Return `count` bytes from `offset` on; fewer only where the file ends."""
        parts: list[bytes] = []
        while count > 0 and (part := os.pread(self.descriptor, min(count, 1 << 30), offset)):
            parts.append(part)
            offset, count = offset + len(part), count - len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    @property
    def descriptor(self) -> int:
        """The open file."""
        if self._descriptor is None:
            raise ValueError(f"{self.name} was closed")
        return self._descriptor

    def current_size(self) -> int:
        """Return its bytes now: who reads the map of a file that became shorter is killed."""
        return os.fstat(self.descriptor).st_size

    def mapped(self) -> memoryview:
        """Return all bytes, mapped and not read; none of an empty file."""
        if self._map is None:
            whole = mmap.mmap(self.descriptor, 0, prot=mmap.PROT_READ) if self.size else b""
            self._map = memoryview(whole)
        return self._map

    def close(self) -> None:
        """Close the file; maps of it stay."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = self._map = None

    def __del__(self) -> None:
        """Close what nobody reads any more: a shard that others took the place of."""
        if getattr(self, "_descriptor", None) is not None:
            self.close()


class BytesInMemory:
    """Bytes in memory, read as a file."""

    name = "memory"

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.size = len(data)

    def read_at(self, offset: int, count: int) -> bytes:
        """Return `count` bytes from `offset` on; fewer only where they end."""
        return self.data[offset : offset + count]

    def close(self) -> None:
        """Nothing is open."""


@dataclass(frozen=True)
class LocalFiles:
    """The files of this machine."""

    def is_folder(self, where: str) -> bool | None:
        """Whether a place is a folder; None where there is nothing."""
        try:
            return stat.S_ISDIR(os.stat(where).st_mode)
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return None

    def walk(self, where: str) -> Iterator[tuple[bytes, int | None]]:
        """Yield the files below a folder; links are followed, and no folder is entered twice."""
        root = os.fsencode(where)
        pending, seen = [b""], {_identity(root)}
        while pending:
            inner = pending.pop()
            with os.scandir(os.path.join(root, inner)) as entries:
                for entry in entries:
                    name = inner + entry.name
                    if entry.name.startswith(b"."):
                        continue
                    if not entry.is_dir():
                        yield name, None
                    elif not entry.is_symlink():
                        pending.append(name + b"/")
                    elif (identity := _identity(entry.path)) not in seen:
                        seen.add(identity)
                        pending.append(name + b"/")

    def open_bytes(self, where: str) -> LocalBytes:
        """Open a file."""
        return LocalBytes(where)

    def path_of(self, where: str) -> str:
        """Return the path itself."""
        return where


def _identity(path: bytes) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_dev, status.st_ino


class StoredPlace(NamedTuple):
    """Where data lies: a file, or a folder of files."""

    where: str
    files: StoredFiles

    def inside(self, name: str) -> StoredPlace:
        """Return the place of a file in the folder."""
        return StoredPlace(f"{self.where.rstrip('/')}/{name}", self.files)

    def stored(self) -> StoredBytes:
        """Open the file."""
        return self.files.open_bytes(self.where)

    @property
    def name(self) -> str:
        """The last part of the place."""
        return self.where.rstrip("/").rpartition("/")[2]


def read_exactly(stored: StoredBytes, offset: int, count: int) -> bytes:
    """Return `count` bytes, having checked that the file has them before any memory is taken.

    Raises:
        DamagedBytesError: the file ends before, or the numbers cannot be.
    """
    if offset < 0 or count < 0 or offset + count > stored.size:
        what = f"{count:,} bytes at offset {offset:,}, and the file has {stored.size:,} bytes"
        raise DamagedBytesError(f"it should have {what}")
    data = stored.read_at(offset, count)
    if len(data) != count:
        what = f"{len(data):,} of {count:,} bytes could be read at offset {offset:,}"
        raise DamagedBytesError(f"the file has become shorter: {what}")
    return data


def read_ranges(
    stored: StoredBytes, offsets: Sequence[int], sizes: Sequence[int]
) -> list[memoryview]:
    """Return many ranges of one file, in the order asked for; neighbours come in one read.

    Args:
        stored: the file.
        offsets: (B,) where each range begins [bytes].
        sizes: (B,) of each range [bytes].
    """
    parts: list[memoryview] = [memoryview(b"")] * len(offsets)
    for run in _runs(offsets, sizes):
        first = offsets[run[0]]
        end = max(offsets[i] + sizes[i] for i in run)
        data = memoryview(read_exactly(stored, first, end - first))
        for i in run:
            parts[i] = data[offsets[i] - first : offsets[i] - first + sizes[i]]
    return parts


def _runs(offsets: Sequence[int], sizes: Sequence[int]) -> Iterator[list[int]]:
    run: list[int] = []
    start = end = 0
    for i in sorted(range(len(offsets)), key=offsets.__getitem__):
        near = run and offsets[i] <= end + GAP_BYTES
        if near and offsets[i] + sizes[i] - start <= MAX_RUN_BYTES:
            run.append(i)
            end = max(end, offsets[i] + sizes[i])
            continue
        if run:
            yield run
        run, start, end = [i], offsets[i], offsets[i] + sizes[i]
    if run:
        yield run


def by_shard(
    indices: NDArray[np.int64], starts: NDArray[np.int64]
) -> Iterator[tuple[int, NDArray[np.int64], NDArray[np.int64]]]:
    """Yield (shard, positions in the batch, rows in the shard) for each shard that is needed.

    Args:
        indices: (B,) the samples' numbers.
        starts: (num_shards + 1,) the first sample of each shard, and the number of all.
    """
    if len(starts) == 2:
        yield 0, np.arange(len(indices)), indices
        return
    shards = np.searchsorted(starts, indices, side="right") - 1
    order = np.argsort(shards, kind="stable")
    ends = np.flatnonzero(np.diff(shards[order])) + 1
    for positions in np.split(order, ends):
        shard = int(shards[positions[0]])
        yield shard, positions, indices[positions] - starts[shard]
