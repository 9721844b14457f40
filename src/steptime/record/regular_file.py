"""The door to every file that somebody else may have made: runs, studies, recipes, figures.

In: a path. Out: an open file, or its bytes. It opens regular files alone: a pipe would wait for a
writer, and opening a device may set it going. A link is followed, for people move large files to
other disks; what it leads to must be regular too. No file above its limit is read, for nothing of
ours is as large, and a file with holes may claim to be larger than the memory.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import BinaryIO

MAX_DOCUMENT_BYTES = 16 << 20
"""Of a file that is read at once; plain data takes some 30 times the memory of dense JSON. The
measurement of a run with a thousand ranks has 4 MB."""

_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


def open_regular(path: str | os.PathLike[str], *, max_bytes: int) -> BinaryIO:
    """Return the file, opened for reading.

    Raises:
        FileNotFoundError: there is none.
        OSError: it is not a regular file, is larger than the limit, or cannot be read.
    """
    try:
        _check(os.stat(path), path, max_bytes)  # first, because opening a device may do something
        descriptor = os.open(path, _FLAGS)
    except ValueError as error:  # a zero byte in a path
        raise OSError(errno.EINVAL, str(error), repr(path)) from error
    try:
        _check(os.fstat(descriptor), path, max_bytes)  # it may have been replaced meanwhile
    except OSError:
        os.close(descriptor)
        raise
    return open(descriptor, "rb")


def read_regular(path: str | os.PathLike[str], *, max_bytes: int = MAX_DOCUMENT_BYTES) -> bytes:
    """Return the bytes of a file.

    Raises:
        FileNotFoundError: there is none.
        OSError: it is not a regular file, is larger than the limit, or cannot be read.
    """
    with open_regular(path, max_bytes=max_bytes) as file:
        return file.read(max_bytes)  # it may have grown


def _check(status: os.stat_result, path: str | os.PathLike[str], max_bytes: int) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "no regular file")
        code = errno.EISDIR if stat.S_ISDIR(status.st_mode) else errno.EINVAL
        raise OSError(code, f"it is {kind}, and Steptime reads regular files alone", path)
    if status.st_size > max_bytes:
        what = f"it has {status.st_size:,} bytes, and Steptime reads at most {max_bytes:,} of it"
        raise OSError(errno.EFBIG, what, path)


_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
