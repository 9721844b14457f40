"""The one reader of files of lines, in which each line is one JSON object with a `k`.

In: a path. Out: the objects that were appended since the last read, in order; no byte is read
twice. It serves files that still grow (the live line, trials, recordings) and files at rest (the
fold). It skips and counts lines that hold something else, or were cut short. It reads only regular
files within their limit of size, at most as far as they reached when the read began, passes over
holes, and never holds a line above `MAX_LINE_BYTES`.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

from .files import MAX_PROCESSES_BYTES, MAX_RANK_BYTES, PROCESSES, max_bytes_of
from .live.read_bytes import ReadBytes
from .regular_file import open_regular

Line = dict[str, Any]

CHUNK_BYTES = 1 << 20
"""The reader holds so much of a file at once, beside the unfinished line."""

MAX_LINE_BYTES = 16 << 20
"""The longest lines hold the names of all weights of a model: a few megabytes. The objects of a
line take up to 30 times its bytes."""

MAX_FOREIGN_LINES = 100_000
"""Of lines that hold something else; a file of more is none of ours, and could take hours."""


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
        remembers: what was read is remembered, so that `was_changed` can tell.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        torn: Torn | None = None,
        *,
        newest_bytes: int | None = None,
        without: Iterable[str] = (),
        remembers: bool = False,
    ) -> None:
        self.path = path
        self.torn = Torn() if torn is None else torn
        self._newest_bytes = newest_bytes
        is_of_processes = os.path.basename(os.fspath(path)) == PROCESSES
        self._half = MAX_PROCESSES_BYTES // 2 if is_of_processes else MAX_RANK_BYTES
        self._known = ReadBytes() if remembers else None
        # the guest writes lines of many rows without spaces
        self._unread = tuple(
            b for kind in without for b in (f'{{"k":"{kind}"'.encode(), f'{{"k": "{kind}"'.encode())
        )
        self._offset = 0
        self._num_foreign = 0
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
        file = None if self._offset else _open(self.path)
        if file is None:
            return None
        with file:
            line = file.readline(MAX_LINE_BYTES)
            if not line.endswith(b"\n"):
                return None
            self._remember(file, line)
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
                self._skip_hole(file, end)
                self._skip_middle(file, end)
                new = file.read(min(CHUNK_BYTES, end - self._offset))
                if not new:
                    return  # somebody made it shorter meanwhile
                self._remember(file, new)
                self._offset += len(new)
                yield from self._take(new)

    def read_to_end(self) -> Iterator[Line]:
        """Yield the same lines for a file that nobody writes to: its last line may lack an end."""
        yield from self.read()
        rest, self._rest = self._rest, b""
        if (line := self._parse(rest)) is not None:
            yield line

    def was_changed(self) -> bool:
        """Return whether the file no longer holds what was read of it.

        Raises:
            OSError: the file cannot be read, or is not a regular file.
        """
        file = _open(self.path)
        try:
            return self._known is not None and not self._known.are_in(file)
        finally:
            if file is not None:
                file.close()

    def _remember(self, file: BinaryIO, data: bytes) -> None:
        if self._known is not None:
            self._known.take(file, self._offset, data)

    def _skip_old(self, file: BinaryIO, end: int) -> None:
        newest = self._newest_bytes
        if newest is None or end - self._offset <= newest:
            return
        file.seek(end - newest - 1)
        passed = file.readline(newest + 1)  # the rest of a line; at best only its end
        self._offset, self._rest = end - newest - 1 + len(passed), b""
        self._is_in_long_line = not passed.endswith(b"\n")

    def _skip_hole(self, file: BinaryIO, end: int) -> None:
        """Pass over a hole: it reads as zeros, and may claim to be larger than the disk."""
        before = os.lseek(file.fileno(), 0, os.SEEK_CUR)  # what the file object believes
        try:
            data = os.lseek(file.fileno(), self._offset, os.SEEK_DATA)
        except OSError as error:  # no data are left, or the disk knows no holes
            data = end if error.errno == errno.ENXIO else self._offset
        os.lseek(file.fileno(), before, os.SEEK_SET)
        if data > self._offset:
            self._offset = min(data, end)
            file.seek(self._offset)
            self._drop()

    def _skip_middle(self, file: BinaryIO, end: int) -> None:
        """Of a file that names processes, read the first and the last half of what is enough."""
        if self._half <= self._offset < end - self._half:
            self._offset = end - self._half
            file.seek(self._offset)
            self._drop()

    def _drop(self) -> None:
        """Give up the line that was begun, up to its end."""
        if not self._is_in_long_line:
            self._rest, self._is_in_long_line = b"", True
            self._count_foreign()

    def _count_foreign(self) -> None:
        self.torn.count += 1
        self._num_foreign += 1
        if self._num_foreign > MAX_FOREIGN_LINES:
            what = f"more than {MAX_FOREIGN_LINES:,} of its lines were not written by Steptime"
            raise OSError(errno.EINVAL, what, os.fspath(self.path))

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
            self._drop()
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
        self._count_foreign()
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


def kind_of(line: Line) -> str:
    """Return what kind of line it is, one of `record.kinds`."""
    kind: str = line["k"]
    return kind


def _open(path: str | os.PathLike[str]) -> BinaryIO | None:
    """Return the file; None if there is none."""
    try:
        return open_regular(path, max_bytes=max_bytes_of(path))
    except FileNotFoundError:
        return None
