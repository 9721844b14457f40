"""LitData's chunks of rows: where all leaves are plain, a chunk ends with an Arrow file of them.

The samples of such a chunk are empty, and behind the Arrow file stand its length (uint32) and a
mark. Source: Lightning-AI/litData 0.2.76, the layout that its writer documents.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from steptime.data.stored_bytes import (
    DamagedBytesError,
    StoredBytes,
    StoredFiles,
    StoredPlace,
    read_exactly,
)

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


@dataclass(frozen=True)
class ArrowTails:
    """Files of which the Arrow file at the end is what is opened."""

    files: StoredFiles

    def is_folder(self, where: str) -> bool | None:
        """Whether a place is a folder; None where there is nothing."""
        return self.files.is_folder(where)

    def walk(self, where: str) -> Iterator[tuple[bytes, int | None]]:
        """Yield the files below a folder."""
        return self.files.walk(where)

    def open_bytes(self, where: str) -> PartOfBytes:
        """Open the Arrow file at the end of a chunk.

        Raises:
            DamagedBytesError: there is none.
        """
        stored = self.files.open_bytes(where)
        tail = read_exactly(stored, max(stored.size - TAIL_BYTES, 0), min(TAIL_BYTES, stored.size))
        size = int.from_bytes(tail[:4], "little")
        if tail[4:] != MARK or size > stored.size - TAIL_BYTES:
            raise DamagedBytesError("its rows are not where they should be, at its end")
        return PartOfBytes(stored, stored.size - TAIL_BYTES - size, size)

    def path_of(self, where: str) -> None:
        """A part of a file has no path."""
        del where


def has_rows(place: StoredPlace) -> bool:
    """Whether a chunk ends with rows."""
    stored = place.stored()
    try:
        return stored.read_at(max(stored.size - len(MARK), 0), len(MARK)) == MARK
    finally:
        stored.close()
