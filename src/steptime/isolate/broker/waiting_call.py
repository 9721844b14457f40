"""A system call of a child that waits for an answer, and the answers that there are."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

AT_FDCWD = -100
_MAX_PATH = 4096
_PAGE = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class GoOn:
    """The kernel does what was asked, with its own checks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The call fails with this errno; 0 is success without doing anything more."""

    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NewDescriptor:
    """The call returns a new descriptor."""

    descriptor: int
    flags: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaced:
    """What the child's descriptor `number` means is now this, and the call ends with an errno."""

    descriptor: int
    number: int
    flags: int = 0
    error: int = 0


Reply = GoOn | Failure | NewDescriptor | Replaced


def fail(number: int) -> Failure:
    """Return the answer that makes a call fail."""
    return Failure(number=number)


@cache
def open_proc() -> int:
    """Return /proc as it was at the first call: an isolated child gets another one there."""
    return os.open("/proc", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingCall:
    """What a process wants; `pid` is its thread. All of it is the child's word, so it may be wrong.

    Raises, in each method:
        OSError: it cannot be read, or the process is gone.
    """

    name: str
    pid: int
    arguments: tuple[int, ...]
    is_waiting: Callable[[], bool]

    def signed(self, index: int) -> int:
        """Return an argument as a C `int`."""
        value = self.arguments[index] & 0xFFFFFFFF
        return value - (1 << 32) if value >> 31 else value

    def data(self, index: int, size: int) -> bytes:
        """Return what an argument points to."""
        memory = os.open(f"{self.pid}/mem", os.O_RDONLY | os.O_CLOEXEC, dir_fd=open_proc())
        try:
            found = os.pread(memory, size, self.arguments[index])
        finally:
            os.close(memory)
        self._check()
        return found

    def write(self, index: int, data: bytes) -> None:
        """Write where an argument points to."""
        self._check()
        memory = os.open(f"{self.pid}/mem", os.O_RDWR | os.O_CLOEXEC, dir_fd=open_proc())
        try:
            os.pwrite(memory, data, self.arguments[index])
        finally:
            os.close(memory)

    def path(self, index: int) -> str:
        """Return the path that an argument points to."""
        address = self.arguments[index]
        memory = os.open(f"{self.pid}/mem", os.O_RDONLY | os.O_CLOEXEC, dir_fd=open_proc())
        found = b""
        try:
            while b"\0" not in found and len(found) < _MAX_PATH:
                # To the end of the page only: the next one may not be there.
                place = address + len(found)
                piece = os.pread(memory, _PAGE - place % _PAGE, place)
                if not piece:
                    raise OSError(errno.EFAULT, os.strerror(errno.EFAULT))
                found += piece
        finally:
            os.close(memory)
        self._check()
        if b"\0" not in found:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
        return os.fsdecode(found.partition(b"\0")[0])

    def place(self, folder: int, path: str) -> str:
        """Return the absolute path, with links followed everywhere but in its last part."""
        if not path.startswith("/"):
            base = "cwd" if folder == AT_FDCWD else f"fd/{folder}"
            path = os.path.join(self._link(base), path)
        parent, last = os.path.split(path.rstrip("/") or "/")
        if last in ("", ".", ".."):
            return os.path.realpath(path)
        return os.path.join(os.path.realpath(parent), last)

    def descriptor(self, number: int) -> str:
        """Return what a descriptor is: a path, or `socket:[1234]`."""
        return self._link(f"fd/{number}")

    def pin(self, number: int) -> int:
        """Return a descriptor here of what a descriptor there is now."""
        place = f"{self.pid}/fd/{number}"
        pinned = os.open(place, os.O_PATH | os.O_CLOEXEC, dir_fd=open_proc())
        try:
            self._check()
        except OSError:
            os.close(pinned)
            raise
        return pinned

    def descriptor_flags(self, number: int) -> int:
        """Return how a descriptor is open, O_NONBLOCK for example."""
        return int(self._word(f"fdinfo/{number}", "flags:"), 8)

    def umask(self) -> int:
        """Return the rights that new files of the process do not get."""
        with contextlib.suppress(OSError, ValueError, IndexError):
            return int(self._word("status", "Umask:"), 8)
        return 0o077

    def _word(self, name: str, label: str) -> str:
        file = os.open(f"{self.pid}/{name}", os.O_RDONLY | os.O_CLOEXEC, dir_fd=open_proc())
        with open(file, encoding="utf-8", errors="replace") as lines:
            return lines.read().partition(label)[2].split()[0]

    def _link(self, name: str) -> str:
        return os.readlink(f"{self.pid}/{name}", dir_fd=open_proc())

    def _check(self) -> None:
        if not self.is_waiting():
            raise OSError(errno.EINTR, os.strerror(errno.EINTR))
