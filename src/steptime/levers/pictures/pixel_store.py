"""Decoded images in memory or in a file, for a process and those that it forks later.

This is no lever, as it has no `LEVER`. The bytes and the table of where they lie are shared, so
workers find what others decoded, in later epochs too. Nothing is ever removed: a store that is full
keeps what it has, as an epoch asks for each sample once.
"""

from __future__ import annotations

import mmap
import multiprocessing
import os
import shutil
import tempfile
from contextlib import suppress
from hashlib import blake2b
from typing import Any, Protocol

KEY = 16
ENTRY = 32
"""Bytes of a row of the table: key, place + 1, size."""

MAX_ENTRIES = 1 << 21
MAX_PROBES = 64
LEAST_IMAGE = 1024
DISK_FRACTION = 0.5
"""Of the free space: the script's own checkpoints may still come."""

HEADER = 8
"""In front of the table: the bytes in use."""

LOCK_S = 1.0
"""A worker that is killed while it writes keeps the lock: the others go on without."""


class PixelPlace(Protocol):
    """Where bytes lie."""

    def read(self, start: int, size: int) -> Any:
        """Return bytes, or a view of them."""

    def write(self, start: int, data: bytes) -> None:
        """Keep bytes; raise an OSError where there is no room."""

    def close(self) -> None:
        """Give the room back."""


class PixelMemory:
    """Memory that forked processes share; it is taken as it is written to."""

    def __init__(self, num_bytes: int) -> None:
        self.num_bytes = num_bytes
        self.map = mmap.mmap(-1, num_bytes)
        self.view = memoryview(self.map)

    def read(self, start: int, size: int) -> Any:
        """Return a view of the bytes."""
        return self.view[start : start + size]

    def write(self, start: int, data: bytes) -> None:
        """Keep bytes."""
        self.view[start : start + len(data)] = data

    def close(self) -> None:
        """Give the memory back."""
        with suppress(BufferError):  # what was read last may still be looked at: it goes with that
            self.view.release()
            self.map.close()


class PixelDisk:
    """A file without a name in the folder for temporary files: it is gone with its processes."""

    def __init__(self, num_bytes: int) -> None:
        folder = tempfile.gettempdir()
        free = shutil.disk_usage(folder).free
        self.num_bytes = min(num_bytes, int(DISK_FRACTION * free))
        self.file, name = tempfile.mkstemp(dir=folder)
        os.unlink(name)
        self.identity = self.identify()

    def identify(self) -> tuple[int, int]:
        """Return what file the descriptor means now: a script may close all and open others."""
        found = os.fstat(self.file)
        return found.st_dev, found.st_ino

    def check(self) -> None:
        """Raise an OSError if the descriptor is no longer ours."""
        if self.identify() != self.identity:
            raise OSError("the file of decoded images was closed")

    def read(self, start: int, size: int) -> Any:
        """Return the bytes."""
        self.check()
        data = os.pread(self.file, size, start)
        if len(data) != size:
            raise OSError("the file of decoded images is shorter than what was written")
        return data

    def write(self, start: int, data: bytes) -> None:
        """Keep bytes."""
        self.check()
        if os.pwrite(self.file, data, start) != len(data):
            raise OSError("the disk is full")

    def close(self) -> None:
        """Give the disk space back."""
        self.check()
        os.close(self.file)


class PixelStore:
    """Bytes by key, up to a number of bytes.

    Args:
        num_bytes: all that may be kept.
        is_on_disk: in a file instead of in memory.
        num_entries: how many keys there may be; by default as many as small images fit.
    """

    def __init__(self, num_bytes: int, *, is_on_disk: bool, num_entries: int | None = None) -> None:
        self.place: PixelPlace
        self.place = place = PixelDisk(num_bytes) if is_on_disk else PixelMemory(num_bytes)
        self.num_bytes = place.num_bytes
        self.num_entries = max(1, num_entries or min(MAX_ENTRIES, self.num_bytes // LEAST_IMAGE))
        self.table = mmap.mmap(-1, HEADER + ENTRY * self.num_entries)
        self.lock = multiprocessing.get_context("fork").Lock()
        self.is_closed = False

    def close(self) -> None:
        """Give the room back; nothing is kept from now on, and what was is not found."""
        self.is_closed = True
        self.table[:] = bytes(len(self.table))
        with suppress(OSError):
            self.place.close()

    def find(self, key: bytes) -> tuple[int, int, int]:
        """Return a key's row, and the place and size of its bytes; size 0 where there are none.

        The row is -1 where there is none, and no free one either.
        """
        first = int.from_bytes(key[:8], "little")
        for step in range(MAX_PROBES):
            row = (first + step) % self.num_entries
            start = HEADER + ENTRY * row
            entry = self.table[start : start + ENTRY]
            place = int.from_bytes(entry[KEY : KEY + 8], "little")
            if not place:
                return row, 0, 0
            if entry[:KEY] == key:
                return row, place - 1, int.from_bytes(entry[KEY + 8 :], "little")
        return -1, 0, 0

    def get(self, key: bytes) -> Any:
        """Return what is kept under a key; None if nothing is, or it cannot be read."""
        _, place, size = self.find(key)
        if not size:
            return None
        try:
            return self.place.read(place, size)
        except OSError:
            return None

    def put(self, key: bytes, data: bytes) -> None:
        """Keep bytes under a key, if there is room."""
        if self.is_closed:
            return
        if not self.lock.acquire(timeout=LOCK_S):
            self.is_closed = True  # a worker was killed that held it
            return
        try:
            row, _, known = self.find(key)
            used = int.from_bytes(self.table[:HEADER], "little")
            if known or row < 0 or used + len(data) > self.num_bytes:
                return
            self.place.write(used, data)
            self.table[:HEADER] = (used + len(data)).to_bytes(HEADER, "little")
            start = HEADER + ENTRY * row
            self.table[start : start + KEY] = key
            self.table[start + KEY + 8 : start + ENTRY] = len(data).to_bytes(8, "little")
            # last, as readers take no lock: from now on the row counts
            self.table[start + KEY : start + KEY + 8] = (used + 1).to_bytes(8, "little")
        except OSError:
            self.is_closed = True
        finally:
            self.lock.release()


def key_of(image: Any) -> bytes | None:
    """Return a key of an opened image that changes with its file; None if it has no file.

    A file in memory is known by its bytes.
    """
    form = (image.format, image.mode, image.size, image.decoderconfig, image.tile)
    try:
        found = os.fstat(image.fp.fileno())
        identity: Any = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
    except (OSError, AttributeError, ValueError):
        if not hasattr(image.fp, "getbuffer"):
            return None
        identity = blake2b(image.fp.getbuffer(), digest_size=KEY).digest()
    return blake2b(repr((identity, form)).encode(), digest_size=KEY).digest()
