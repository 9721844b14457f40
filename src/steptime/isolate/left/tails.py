"""What is kept of a child's output: the last 1 MiB of each stream, in a file.

So a script that prints gigabytes fills neither the disk nor memory. While the child runs, the file
is at most twice as long.
"""

from __future__ import annotations

import os

MAX_BYTES = 1 << 20
_READ_BYTES = 1 << 16


class Tail:
    """Moves what comes out of a pipe into a file, and drops the beginning."""

    def __init__(self, reader: int, path: str) -> None:
        os.set_blocking(reader, False)
        self.reader = reader
        self.is_open = True
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        self._pending = bytearray()
        self._written = 0

    def read(self, *, max_rounds: int = 16) -> None:
        """Take what is there now, but at most so much that everything else gets its turn."""
        for _ in range(max_rounds):
            try:
                data = os.read(self.reader, _READ_BYTES)
            except BlockingIOError:
                return
            if not data:
                self.is_open = False
                return
            self._pending += data
            if len(self._pending) > 2 * MAX_BYTES:
                del self._pending[:-MAX_BYTES]

    def write(self, *, is_last: bool = False) -> None:
        """Write it to the disk."""
        limit = MAX_BYTES if is_last else 2 * MAX_BYTES
        if self._written + len(self._pending) > limit:
            kept = os.pread(self._file, MAX_BYTES, max(0, self._written - MAX_BYTES))
            os.ftruncate(self._file, 0)
            self._written, self._pending = 0, bytearray((kept + self._pending)[-MAX_BYTES:])
        self._written += os.pwrite(self._file, self._pending, self._written)
        self._pending.clear()
