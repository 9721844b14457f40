"""Values of varying length in HDF5 files, read past the library.

HDF5 takes whatever memory a damaged length asks for, and may loop for ever in a damaged heap. A
value is a reference (4 bytes of length, 8 of its heap's address, 4 of its number there), and a heap
is a row of numbered objects. Source: HDF5 File Format Specification 3.0, III.E "Global Heap".
"""

from __future__ import annotations

from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steptime.data.stored_bytes import (
    DamagedBytesError,
    StoredBytes,
    read_exactly,
    read_ranges,
)

REFERENCE_BYTES = 16
MAX_HEAP_BYTES = 1 << 31
"""Of one heap; the library makes heaps of 4 KiB, or as large as one value."""


class Heaps:
    """The heaps of a file, as far as they were read: where each object lies."""

    def __init__(self, stored: StoredBytes, base: int) -> None:
        self._stored = stored
        self._base = base
        self._known: dict[int, dict[int, tuple[int, int]]] = {}
        self._lock = Lock()

    def read(self, data: Any, rows: NDArray[np.int64], item_bytes: int) -> list[memoryview]:
        """Return the bytes of values of one axis, in the order of `rows`."""
        begins = [self._reference_at(data, row) for row in rows.tolist()]
        references = read_ranges(
            self._stored, [begin or 0 for begin in begins], [REFERENCE_BYTES] * len(begins)
        )
        offsets, sizes = [], []
        for begin, reference in zip(begins, references, strict=True):
            address = int.from_bytes(reference[4:12], "little")
            size = int.from_bytes(reference[:4], "little") * item_bytes
            if begin is None or not size:  # never written, or empty
                offsets.append(0)
                sizes.append(0)
                continue
            offset, there = self._object(address, int.from_bytes(reference[12:16], "little"))
            if size > there:
                raise DamagedBytesError(f"a value has {size:,} bytes, and its place {there:,}")
            offsets.append(offset)
            sizes.append(size)
        return read_ranges(self._stored, offsets, sizes)

    def _reference_at(self, data: Any, row: int) -> int | None:
        if data.chunks:
            begin = data.id.get_chunk_info_by_coord((row,)).byte_offset
            row %= data.chunks[0]
        else:
            begin = data.id.get_offset()
        return None if begin is None else int(begin) + self._base + REFERENCE_BYTES * row

    def _object(self, address: int, number: int) -> tuple[int, int]:
        with self._lock:
            if address not in self._known:
                self._known[address] = self._objects(self._base + address)
            found = self._known[address].get(number)
        if found is None:
            raise DamagedBytesError(f"a value is not where it should be: {number} at {address:,}")
        return found

    def _objects(self, at: int) -> dict[int, tuple[int, int]]:
        """Offset and size of the objects of one heap, by number."""
        head = read_exactly(self._stored, at, 16)
        size = int.from_bytes(head[8:16], "little")
        if head[:5] != b"GCOL\x01" or not 16 <= size <= MAX_HEAP_BYTES:
            raise DamagedBytesError(f"there is no heap at offset {at:,}")
        end, here = at + size, at + 16
        found: dict[int, tuple[int, int]] = {}
        while here + 16 <= end:
            one = read_exactly(self._stored, here, 16)
            number, length = int.from_bytes(one[:2], "little"), int.from_bytes(one[8:], "little")
            if number == 0:
                break  # the rest is free
            if length > end - here - 16:
                raise DamagedBytesError(f"the heap at offset {at:,} is damaged")
            found[number] = here + 16, length
            here += 16 + -(-length // 8) * 8
        return found
