"""Bytes that are read by offset as the file objects that libraries want."""

from __future__ import annotations

import io

import pyarrow as pa

from steptime.data.stored_bytes import LocalBytes, StoredBytes, StoredPlace
from steptime.errors import DataError

WINDOW_BYTES = 256 << 10
"""Read at once while headers are walked through: many small records, or the next header alone."""
HEADER_BYTES = 4096


class OffsetFile(io.RawIOBase):
    """A file to read and seek in, over `read_at`; it has a position, so it is for one reader."""

    def __init__(self, stored: StoredBytes) -> None:
        self._stored = stored
        self._at = 0

    def readable(self) -> bool:
        """It can be read."""
        return True

    def seekable(self) -> bool:
        """It can be read from anywhere."""
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go to a place."""
        self._at = max(0, (0, self._at, self._stored.size)[whence] + offset)
        return self._at

    def tell(self) -> int:
        """Return the place."""
        return self._at

    def size(self) -> int:
        """Return the bytes of the whole."""
        return self._stored.size

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Fill a buffer as far as the file goes."""
        data = self._stored.read_at(self._at, min(len(buffer), self._stored.size - self._at))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def read(self, size: int = -1) -> bytes:
        """Read bytes, as many as there are of those asked for."""
        left = max(self._stored.size - self._at, 0)
        data = self._stored.read_at(self._at, left if size < 0 else min(size, left))
        self._at += len(data)
        return data


class WalkedFile(OffsetFile):
    """A file that is read from header to header: a window at once where records are small."""

    def __init__(self, stored: StoredBytes) -> None:
        super().__init__(stored)
        self._window = b""
        self._begin = 0

    def read(self, size: int = -1) -> bytes:
        """Read bytes, as many as there are of those asked for."""
        inner = self._at - self._begin
        if size < 0 or inner < 0 or inner + size > len(self._window):
            is_near = 0 <= inner <= len(self._window) + WINDOW_BYTES
            ahead = -1 if size < 0 else max(size, WINDOW_BYTES if is_near else HEADER_BYTES)
            at, self._begin, inner = self._at, self._at, 0
            self._window = super().read(ahead)
            self._at = at
        data = self._window[inner : inner + size] if size >= 0 else self._window
        self._at += len(data)
        return data


def file_object(stored: StoredBytes) -> pa.NativeFile:
    """Return a file for Arrow: mapped where it is local, so that nothing is copied twice."""
    if isinstance(stored, LocalBytes):
        return pa.BufferReader(pa.py_buffer(stored.mapped()))
    return pa.PythonFile(OffsetFile(stored), mode="r")


def local_path(place: StoredPlace, name: str) -> str:
    """Return the path of a file that a library must open itself.

    Raises:
        DataError: it is in a store, or no regular file.
    """
    path = place.files.path_of(place.where)
    if path is None:
        raise DataError(f"{place.where}: {name} can be read from a local disk alone")
    place.stored().close()  # refuses pipes and devices
    return path
