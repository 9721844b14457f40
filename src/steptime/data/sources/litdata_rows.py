"""LitData's chunks of rows: where all leaves are plain, a chunk ends with an Arrow file of them.

The samples of such a chunk are empty, and behind the Arrow file stand its length (uint32) and a
mark. Source: Lightning-AI/litData 0.2.76, the layout that its writer documents.
"""

from __future__ import annotations

from steptime.data.stored_bytes import DamagedBytesError, StoredBytes, StoredPlace, read_exactly

MARK = b"LDARW01\0"
TAIL_BYTES = 4 + len(MARK)


class PartOfBytes:
    """Some bytes of a file, read as a file."""

    def __init__(self, stored: StoredBytes, begin: int, size: int) -> None:
        self._stored = stored
        self._begin = begin
        self.name = stored.name
        self.size = size

    def read_at(self, offset: int, count: int) -> bytes:
        """Return `count` bytes from `offset` on; fewer only where the part ends."""
        return self._stored.read_at(self._begin + offset, max(min(count, self.size - offset), 0))

    def close(self) -> None:
        """Close the file."""
        self._stored.close()


class ArrowTail(StoredPlace):
    """The place of a chunk of which the Arrow file at the end is what is opened."""

    def stored(self) -> PartOfBytes:
        """Open the Arrow file at the end of a chunk.

        Raises:
            DamagedBytesError: there is none.
        """
        stored = super().stored()
        tail = read_exactly(stored, max(stored.size - TAIL_BYTES, 0), min(TAIL_BYTES, stored.size))
        size = int.from_bytes(tail[:4], "little")
        if tail[4:] != MARK or size > stored.size - TAIL_BYTES:
            raise DamagedBytesError("its rows are not where they should be, at its end")
        return PartOfBytes(stored, stored.size - TAIL_BYTES - size, size)


def has_rows(place: StoredPlace) -> bool:
    """Whether a chunk ends with rows."""
    stored = place.stored()
    try:
        return stored.read_at(max(stored.size - len(MARK), 0), len(MARK)) == MARK
    finally:
        stored.close()
