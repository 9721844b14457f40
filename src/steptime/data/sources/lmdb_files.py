"""LMDB: the values of a store, by the order of their keys, without the library.

The pages are walked once in our own words, each offset checked, since a damaged page ends a process
that maps it by the library. Source: LMDB's mdb.c, "Page format" (version 1 of its data).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from steptime.data.source import Column, Values
from steptime.data.sources.record_shards import RecordIndex, join_index, read_records
from steptime.data.sources.shards import OpenShards
from steptime.data.stored_bytes import DamagedBytesError, StoredBytes, StoredPlace, read_exactly
from steptime.errors import DataError

MAGIC = 0xBEEFC0DE
PAGE_HEADER = 16
BRANCH, LEAF, OVERFLOW, META = 1, 2, 4, 8
"""Flags of pages."""
BIG_DATA, SUB_DATA, DUP_DATA = 1, 2, 4
"""Flags of values: on pages of their own; a store or several values under one key."""
NO_PAGE = 0xFFFFFFFFFFFFFFFF
MAX_DEPTH = 32
"""LMDB's own limit (CURSOR_STACK)."""


class LMDBIndex(NamedTuple):
    """Where the values lie, and the keys in one piece."""

    records: RecordIndex
    key_ends: NDArray[np.int64]
    keys: bytes

    def key(self, row: int) -> bytes:
        """Return the key of a value."""
        begin = int(self.key_ends[row - 1]) if row else 0
        return self.keys[begin : int(self.key_ends[row])]


class LMDBReader:
    """See the module."""

    name = "LMDB"

    def __init__(self, index: LMDBIndex, *, with_names: bool) -> None:
        self._index = index
        self._with_names = with_names
        self._shards = OpenShards(index.records.shards)
        name = (Column("name", "bytes"),) if with_names else ()
        self.columns = (Column("data", "bytes"), *name)
        self.num_bytes = int(index.records.sizes.sum())

    def __len__(self) -> int:
        """Return the number of values."""
        return len(self._index.records.offsets)

    def read(self, indices: NDArray[np.int64]) -> dict[str, Values]:
        """Read values as they are; most stores hold what only their writer can decode."""
        records = read_records(self._shards, self._index.records, indices)
        values: dict[str, Values] = {"data": [bytes(record) for record in records]}
        if self._with_names:
            values["name"] = [self._index.key(row) for row in indices.tolist()]
        return values

    def place_of(self, index: int) -> str:
        """Return file, row and key."""
        key = self._index.key(index)
        shown = key.decode("ascii") if key.isascii() and key.decode().isprintable() else key.hex()
        return f"{self._index.records.place_of(index)} (key {shown})"

    def index(self) -> LMDBIndex:
        """Return where the values lie, which takes a walk through all pages to know."""
        return self._index

    def close(self) -> None:
        """Close the file."""
        self._shards.close()


def open_lmdb(place: StoredPlace, index: LMDBIndex | None, *, names: bool = False) -> LMDBReader:
    """Open a store: its file, or the folder with `data.mdb`.

    Args:
        place: the file or folder.
        index: where the values lie, if that is known.
        names: whether each value's key is a column as well.
    """
    if index is None:
        file = place.inside("data.mdb") if place.files.is_folder(place.where) else place
        index = _find_values(file)
    return LMDBReader(index, with_names=names)


def is_lmdb(start: bytes) -> bool:
    """Whether bytes begin with the first page of a store."""
    return len(start) >= 20 and int.from_bytes(start[16:20], "little") == MAGIC


def _find_values(place: StoredPlace) -> LMDBIndex:
    try:
        stored = place.stored()
        page_bytes, root, depth, entries = _newest_meta(stored)
        offsets: list[int] = []
        sizes: list[int] = []
        keys, key_ends = bytearray(), []
        for key, offset, size in _values(stored, page_bytes, root, depth):
            if len(offsets) >= entries:
                raise DamagedBytesError(f"it has more than the {entries:,} values that it says")
            keys += key
            key_ends.append(len(keys))
            offsets.append(offset)
            sizes.append(size)
        if len(offsets) != entries:
            raise DamagedBytesError(f"it has {len(offsets):,} of {entries:,} values")
        stored.close()
    except (OSError, ValueError, struct.error) as error:
        raise DataError(f"{place.where} cannot be read as LMDB: {error}") from error
    found = np.array(offsets, np.int64), np.array(sizes, np.int64)
    return LMDBIndex(join_index([place], [found]), np.array(key_ends, np.int64), bytes(keys))


def _newest_meta(stored: StoredBytes) -> tuple[int, int, int, int]:
    """Page size, root page, depth and number of values, of the newer of the two first pages."""
    first = read_exactly(stored, 0, min(stored.size, 4096))
    page_bytes = struct.unpack_from("<I", first, PAGE_HEADER + 24)[0]
    if page_bytes not in (1 << n for n in range(9, 17)):
        raise DamagedBytesError(f"its pages should have {page_bytes:,} bytes")
    found = []
    for page in (0, 1):
        meta = read_exactly(stored, page * page_bytes, PAGE_HEADER + 136)
        magic, version = struct.unpack_from("<2I", meta, PAGE_HEADER)
        if magic != MAGIC or version != 1:
            raise DamagedBytesError(f"it has the version {version}, and 1 is supported")
        flags, depth = struct.unpack_from("<2H", meta, PAGE_HEADER + 24 + 48 + 4)
        entries, root = struct.unpack_from("<2Q", meta, PAGE_HEADER + 24 + 48 + 32)
        (transaction,) = struct.unpack_from("<Q", meta, PAGE_HEADER + 24 + 96 + 8)
        found.append((transaction, root, depth, entries, flags))
    _, root, depth, entries, flags = max(found)
    if flags & DUP_DATA:
        raise DamagedBytesError("it has several values under one key, which is not supported")
    return page_bytes, root, depth, entries


def _values(
    stored: StoredBytes, page_bytes: int, root: int, depth: int
) -> Iterator[tuple[bytes, int, int]]:
    """Yield key, offset and size of each value, in the order of the keys."""
    if root == NO_PAGE:
        return
    if depth > MAX_DEPTH:
        raise DamagedBytesError(f"it should be {depth} pages deep")
    pending = [(root, 1)]
    visited = 0
    while pending:
        number, level = pending.pop()
        visited += 1
        if level > depth or visited > stored.size // page_bytes:
            raise DamagedBytesError("its pages lead in a circle")
        page = read_exactly(stored, number * page_bytes, page_bytes)
        flags, nodes = _nodes(page)
        if flags & BRANCH:
            children = []
            for at in nodes:
                low, high, top = struct.unpack_from("<3H", page, at)
                children.append((low | high << 16 | top << 32, level + 1))
            pending += reversed(children)
        elif flags & LEAF:
            yield from _leaf_values(stored, page, nodes, number * page_bytes, page_bytes)
        else:
            raise DamagedBytesError(f"page {number:,} is damaged")


def _nodes(page: bytes) -> tuple[int, list[int]]:
    """The flags of a page, and where its nodes begin."""
    flags, lower, _ = struct.unpack_from("<3H", page, 10)
    if not PAGE_HEADER <= lower <= len(page):
        raise DamagedBytesError("a page is damaged")
    return flags, list(struct.unpack_from(f"<{(lower - PAGE_HEADER) // 2}H", page, PAGE_HEADER))


def _leaf_values(
    stored: StoredBytes, page: bytes, nodes: list[int], begin: int, page_bytes: int
) -> Iterator[tuple[bytes, int, int]]:
    for at in nodes:
        low, high, flags, key_bytes = struct.unpack_from("<4H", page, at)
        size, value = low | high << 16, at + 8 + key_bytes
        if flags & (SUB_DATA | DUP_DATA):
            raise DamagedBytesError("it has stores in it, or several values under one key")
        offset = begin + value
        if flags & BIG_DATA:
            (number,) = struct.unpack_from("<Q", page, value)
            offset = number * page_bytes + PAGE_HEADER
        elif value + size > len(page):
            raise DamagedBytesError("a value is longer than its page")
        if value > len(page) or offset + size > stored.size:
            raise DamagedBytesError("a value lies outside of the file")
        yield page[at + 8 : value], offset, size
