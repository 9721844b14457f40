"""Decides about files for the broker: shared memory, and the rights and times of files.

Shared memory and semaphores of POSIX are files in /dev/shm, so what the C library does there
happens in a folder of the child's own, under the same names. Others' segments can be read, but
not changed.
"""

from __future__ import annotations

import errno
import os
import stat

from .waiting_call import AT_FDCWD, GoOn, NewDescriptor, Reply, WaitingCall, fail

SHARED_MEMORY = "/dev/shm"
_AT_SYMLINK_NOFOLLOW, _AT_EMPTY_PATH = 0x100, 0x1000
# Where a call at a folder has its flags; the others have none.
_FLAGS_AT = {"fchmodat2": 3, "fchownat": 4, "utimensat": 3, "setxattrat": 2, "removexattrat": 2}
_NOT_FOLLOWING = frozenset({"lchown", "lsetxattr", "lremovexattr"})


class BrokeredFiles:
    """The files of one child; `memory` is the folder of its shared memory."""

    def __init__(self, folders: tuple[str, ...], memory: str | None) -> None:
        real = {os.path.realpath(folder) for folder in folders}
        self._own = tuple(f"{folder}/" for folder in sorted(real))
        self._memory = memory

    def is_own(self, place: str) -> bool:
        """Return whether the child may really write at an absolute path without links."""
        return f"{place}/".startswith(self._own)

    # --- shared memory --------------------------------------------------------------------

    def open(self, call: WaitingCall) -> Reply:
        """Answer open and openat: of a segment of shared memory, or of anything else."""
        first = 0 if call.name == "open" else 1
        private = self._private(call.path(first))
        if private is None:
            return GoOn()
        flags = call.signed(first + 1)
        if _is_odd(private):  # opening a pipe with a name would wait
            return fail(errno.EACCES)
        mode = call.arguments[first + 2] & 0o7777 & ~call.umask()
        try:
            found = os.open(private, flags | os.O_CLOEXEC, mode)
        except FileNotFoundError:
            is_reading = flags & (os.O_ACCMODE | os.O_CREAT) == os.O_RDONLY
            return GoOn() if is_reading else fail(errno.ENOENT)
        return NewDescriptor(descriptor=found, flags=flags & os.O_CLOEXEC)

    def link(self, call: WaitingCall) -> Reply:
        """Answer link and linkat: the C library makes a semaphore whole before it has its name."""
        places = (0, 1) if call.name == "link" else (1, 3)
        old, new = (self._private(call.path(index)) for index in places)
        if old is None and new is None:
            return GoOn()
        if old is None or new is None:
            return fail(errno.EXDEV)
        os.link(old, new, follow_symlinks=False)
        return fail(0)

    def unlink(self, call: WaitingCall) -> Reply:
        """Answer unlink and unlinkat."""
        private = self._private(call.path(0 if call.name == "unlink" else 1))
        if private is None:
            return GoOn()
        if os.path.isdir(private):
            return fail(errno.EISDIR)
        os.unlink(private)
        return fail(0)

    def _private(self, path: str) -> str | None:
        """Return where a name of shared memory leads; None for any other path."""
        folder, _, name = path.rpartition("/")
        if self._memory is None or folder != SHARED_MEMORY or name in ("", ".", ".."):
            return None
        return f"{self._memory}/{name}"

    # --- rights, owners, times, attributes, length ----------------------------------------

    def change(self, call: WaitingCall) -> Reply:
        """Answer a call that changes what is at a path, its first argument."""
        follows = call.name not in _NOT_FOLLOWING
        return self._decide(call.place(AT_FDCWD, call.path(0)), follows=follows)

    def change_at(self, call: WaitingCall) -> Reply:
        """Answer a call that changes what is at a path, seen from a folder."""
        folder = call.signed(0)
        path = call.path(1) if call.arguments[1] else ""
        flags = call.arguments[_FLAGS_AT[call.name]] if call.name in _FLAGS_AT else 0
        if not path:
            return self._decide(call.descriptor(folder), follows=True)
        return self._decide(call.place(folder, path), follows=not flags & _AT_SYMLINK_NOFOLLOW)

    def change_descriptor(self, call: WaitingCall) -> Reply:
        """Answer a call that changes what a descriptor, its first argument, is open for."""
        return self._decide(call.descriptor(call.signed(0)), follows=True)

    def _decide(self, place: str, *, follows: bool) -> Reply:
        if follows:
            place = os.path.realpath(place)
        # What has no path (a pipe, a socket, a file without a name) is nobody else's.
        if not place.startswith("/") or place.endswith(" (deleted)") or self.is_own(place):
            return GoOn()
        return fail(errno.ENOENT if not os.path.lexists(place) else errno.EPERM)


def _is_odd(path: str) -> bool:
    """Return whether something else than a file or a folder is at a path."""
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))
