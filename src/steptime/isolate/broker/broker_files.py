"""Decides about files for the broker: shared memory, and the rights and times of files.

Shared memory and semaphores of POSIX are files in /dev/shm, so what the C library does there
happens in a folder of the child's own, under the same names. Others' segments can be read, but
not changed.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct

from steptime.isolate import kernel
from steptime.isolate.guard.syscall_numbers import this_processor

from .waiting_call import AT_FDCWD, GoOn, NewDescriptor, Reply, WaitingCall, fail

SHARED_MEMORY = "/dev/shm"
_AT_SYMLINK_NOFOLLOW = 0x100
# Where a call at a folder has its flags; the others have none.
_FLAGS_AT = {"fchmodat2": 3, "fchownat": 4, "utimensat": 3}
_ATTRIBUTES = ("user.", "system.posix_acl_")  # others say what a program may do
_MAX_VALUE = 1 << 16  # of an attribute, for the kernel too
_MAX_LENGTH = (1 << 63) - 1
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
        place = call.place(AT_FDCWD, call.path(0))
        return self._change(call, _pin(place, follows=call.name not in _NOT_FOLLOWING), 1)

    def change_at(self, call: WaitingCall) -> Reply:
        """Answer a call that changes what is at a path, seen from a folder."""
        folder = call.signed(0)
        path = call.path(1) if call.arguments[1] else ""
        flags = call.arguments[_FLAGS_AT[call.name]] if call.name in _FLAGS_AT else 0
        if not path:
            return self._change(call, call.pin(folder), 2)
        place = call.place(folder, path)
        return self._change(call, _pin(place, follows=not flags & _AT_SYMLINK_NOFOLLOW), 2)

    def change_descriptor(self, call: WaitingCall) -> Reply:
        """Answer a call that changes what a descriptor, its first argument, is open for."""
        return self._change(call, call.pin(call.signed(0)), 1)

    def lock(self, call: WaitingCall) -> Reply:
        """Answer a lock: one on somebody else's file holds nobody up, and the child nothing."""
        pinned = call.pin(call.signed(0))
        try:
            return GoOn() if self._may_change(pinned) else fail(0)
        finally:
            os.close(pinned)

    def _may_change(self, pinned: int) -> bool:
        # What has no path (a pipe, a socket, a file without a name) is nobody else's.
        place = os.readlink(f"/proc/self/fd/{pinned}")
        return not place.startswith("/") or not os.fstat(pinned).st_nlink or self.is_own(place)

    def _change(self, call: WaitingCall, pinned: int, first: int) -> Reply:
        """Do it here, to the file that was looked at: the child's path could change meanwhile.

        `first` is the index of the first argument behind the path.
        """
        try:
            if not self._may_change(pinned):
                return fail(errno.EPERM)
            _carry_out(call, f"/proc/self/fd/{pinned}", first)
        finally:
            os.close(pinned)
        return fail(0)


def _pin(place: str, *, follows: bool) -> int:
    """Return a descriptor of what is at a path now."""
    return os.open(place, os.O_PATH | os.O_CLOEXEC | (0 if follows else os.O_NOFOLLOW))


def _carry_out(call: WaitingCall, place: str, first: int) -> None:
    """Do what a call asks for to a file."""
    name = call.name
    if "chmod" in name:
        os.chmod(place, call.arguments[first] & 0o7777)
    elif "chown" in name:
        owner, group = (call.arguments[first + index] & 0xFFFFFFFF for index in (0, 1))
        os.chown(place, owner, group)
    elif "utime" in name:
        _set_times(place, _times(call, first) if call.arguments[first] else None)
    elif name == "truncate":
        os.truncate(place, min(call.arguments[first], _MAX_LENGTH))
    else:
        attribute = call.path(first)
        if not attribute.startswith(_ATTRIBUTES):
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))
        if "remove" in name:
            os.removexattr(place, attribute)
        else:
            value = call.data(first + 1, min(call.arguments[first + 2], _MAX_VALUE + 1))
            os.setxattr(place, attribute, value, call.signed(first + 3))


def _times(call: WaitingCall, first: int) -> bytes:
    """Return two times as utimensat takes them: whole seconds, and nanoseconds."""
    if call.name == "utime":
        access, change = struct.unpack("=qq", call.data(first, 16))
        return struct.pack("=4q", access, 0, change, 0)
    if call.name == "utimensat":
        return call.data(first, 32)
    access, access_us, change, change_us = struct.unpack("=4q", call.data(first, 32))
    return struct.pack("=4q", access, access_us * 1000, change, change_us * 1000)


def _set_times(place: str, times: bytes | None) -> None:
    processor = this_processor()
    assert processor is not None
    kernel.syscall(
        processor.numbers["utimensat"],
        ctypes.c_int(AT_FDCWD),
        os.fsencode(place),
        times,
        ctypes.c_int(0),
        what="utimensat",
    )


def _is_odd(path: str) -> bool:
    """Return whether something else than a file or a folder is at a path."""
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))
