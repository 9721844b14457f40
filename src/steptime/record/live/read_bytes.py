"""Remembers what was read of a file that somebody else may write, so that a later change is seen.

In: the bytes, as they are read. Out: whether the file still holds them. Only digests are kept. What
is appended afterwards is no change; another file of the same name is one.
"""

from __future__ import annotations

import os
from hashlib import blake2b
from typing import BinaryIO

_CHUNK_BYTES = 1 << 20
_DIGEST_BYTES = 16


class ReadBytes:
    """What was read of one file: stretches of it, and which file it was."""

    def __init__(self) -> None:
        self._stretches: list[tuple[int, int, bytes]] = []  # begin, length, digest
        self._begin = self._end = 0
        self._digest = blake2b(digest_size=_DIGEST_BYTES)
        self._file: tuple[int, int] | None = None

    def take(self, file: BinaryIO, begin: int, data: bytes) -> None:
        """Note bytes that were read from an open file, `begin` bytes from its start."""
        if self._file is None:
            facts = os.fstat(file.fileno())
            self._file = facts.st_dev, facts.st_ino
        if begin != self._end:
            self._stretches = self._all()
            self._begin = self._end = begin
            self._digest = blake2b(digest_size=_DIGEST_BYTES)
        self._digest.update(data)
        self._end += len(data)

    def are_in(self, file: BinaryIO | None) -> bool:
        """Return whether an open file holds the same bytes; None stands for a file that is gone."""
        if self._file is None:
            return True
        if file is None:
            return False
        facts = os.fstat(file.fileno())
        return (facts.st_dev, facts.st_ino) == self._file and all(
            _digest(file, begin, length) == known for begin, length, known in self._all()
        )

    def _all(self) -> list[tuple[int, int, bytes]]:
        if self._end == self._begin:
            return self._stretches
        return [*self._stretches, (self._begin, self._end - self._begin, self._digest.digest())]


def _digest(file: BinaryIO, begin: int, length: int) -> bytes:
    digest = blake2b(digest_size=_DIGEST_BYTES)
    file.seek(begin)
    while length > 0 and (data := file.read(min(_CHUNK_BYTES, length))):
        digest.update(data)
        length -= len(data)
    return digest.digest() if length == 0 else b""
