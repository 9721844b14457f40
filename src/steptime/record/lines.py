"""The one reader of files of lines, in which each line is one JSON object with a `k`.

In: a path. Out: the objects that were appended since the last read, in order; no byte is read
twice. It serves files that still grow (the live line, trials, recordings) and files at rest (the
fold). It skips and counts lines that hold something else, or were cut short. It reads only regular
files, at most as far as they reached when the read began, and never holds a line above
`MAX_LINE_BYTES`.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

Line = dict[str, Any]

CHUNK_BYTES = 1 << 20
"""The reader holds so much of a file at once, beside the unfinished line."""

MAX_LINE_BYTES = 64 << 20
"""The longest lines hold the names of all weights of a model: a few megabytes."""


class Torn:
    """Counts the lines that could not be read."""

    def __init__(self) -> None:
        self.count = 0


class LineReader:
    """Follows one file; a line that is not yet complete waits for its end.

    Args:
        path: the file, which may not exist yet.
        torn: counts the lines that could not be read; the reader makes one if none is given.
        newest_bytes: where more was appended since the last read, only so much of it is read, from
            the next whole line on: for a caller that must not fall behind. It never sees the rest.
        without: kinds of lines that are skipped unread; their beginning shows the kind.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        torn: Torn | None = None,
        *,
        newest_bytes: int | None = None,
        without: Iterable[str] = (),
    ) -> None:
        self.path = path
        self.torn = Torn() if torn is None else torn
        self._newest_bytes = newest_bytes
        self._unread = tuple(b for kind in without for b in _beginnings(kind))
        self._offset = 0
        self._rest = b""
        self._is_in_long_line = False  # up to the end of a line that is not kept

    @property
    def num_bytes(self) -> int:
        """Return how many bytes of the file were read or skipped."""
        return self._offset

    def read_head(self) -> Line | None:
        """Return the first line, which `read` then leaves out; None while it is incomplete.

        Raises:
            OSError: the file cannot be read, or is not a regular file.
        """
        file = _open(self.path)
        if file is None or self._offset:
            return None
        with file:
            line = file.readline(MAX_LINE_BYTES)
        if not line.endswith(b"\n"):
            return None
        self._offset = len(line)
        return self._parse(line)

    def read(self) -> Iterator[Line]:
        """Yield the complete lines that were appended; none if there is no file.

        Raises:
            OSError: the file cannot be read, or is not a regular file.
        """
        file = _open(self.path)
        if file is None:
            return
        with file:
            end = os.fstat(file.fileno()).st_size
            self._skip_old(file, end)
            file.seek(self._offset)
            while self._offset < end:
                new = file.read(min(CHUNK_BYTES, end - self._offset))
                if not new:
                    return  # somebody made it shorter meanwhile
                self._offset += len(new)
                yield from self._take(new)

    def read_to_end(self) -> Iterator[Line]:
        """Yield the same lines for a file that nobody writes to: its last line may lack an end."""
        yield from self.read()
        rest, self._rest = self._rest, b""
        if (line := self._parse(rest)) is not None:
            yield line

    def _skip_old(self, file: BinaryIO, end: int) -> None:
        newest = self._newest_bytes
        if newest is None or end - self._offset <= newest:
            return
        file.seek(end - newest - 1)
        passed = file.readline(newest + 1)  # the rest of a line; at best only its end
        self._offset, self._rest = end - newest - 1 + len(passed), b""
        self._is_in_long_line = not passed.endswith(b"\n")

    def _take(self, new: bytes) -> Iterator[Line]:
        first, *others = new.split(b"\n")
        if not others:
            self._keep(first)
            return
        if self._is_in_long_line:
            self._is_in_long_line = False
        elif (line := self._parse(self._rest + first)) is not None:
            yield line
        self._rest = b""
        *whole, rest = others
        for text in whole:
            if (line := self._parse(text)) is not None:
                yield line
        self._rest = rest

    def _keep(self, more: bytes) -> None:
        """Keep more of a line whose end is not there yet."""
        if self._is_in_long_line:
            return
        if len(self._rest) + len(more) > MAX_LINE_BYTES:
            self._rest, self._is_in_long_line = b"", True
            self.torn.count += 1
            return
        self._rest += more

    def _parse(self, text: bytes) -> Line | None:
        """Return the object of a line; count the line and return None if it holds anything else."""
        # After a failed write the guest begins on a fresh line, so blank lines are fine.
        if not text.strip() or (self._unread and text.startswith(self._unread)):
            return None
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):
            line = None
        if isinstance(line, dict) and isinstance(line.get("k"), str):
            return line
        self.torn.count += 1
        return None


def read_lines(
    path: str | os.PathLike[str], torn: Torn | None = None, *, without: Iterable[str] = ()
) -> Iterator[Line]:
    """Yield all lines of a file at rest; none if there is no file.

    Args:
        path: the file.
        torn: counts the lines that could not be read.
        without: kinds of lines that are skipped unread.

    Raises:
        OSError: the file cannot be read, or is not a regular file.
    """
    return LineReader(path, torn, without=without).read_to_end()


def _beginnings(kind: str) -> tuple[bytes, bytes]:
    """Return how lines of a kind begin; the guest writes lines of many rows without spaces."""
    return f'{{"k":"{kind}"'.encode(), f'{{"k": "{kind}"'.encode()


def kind_of(line: Line) -> str:
    """Return what kind of line it is, one of `record.kinds`."""
    kind: str = line["k"]
    return kind


def _open(path: str | os.PathLike[str]) -> BinaryIO | None:
    """Return the file, opened without waiting for the writer of a pipe; None if there is none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return open(descriptor, "rb")
    os.close(descriptor)
    raise OSError(errno.EINVAL, "this is no regular file", os.fspath(path))
