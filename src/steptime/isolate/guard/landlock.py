"""Landlock: this process and everything it starts may write in some folders and nowhere else.

It is the kernel's own guard for unprivileged processes, available from Linux 5.13 where it is
switched on. In /dev, the child opens its own devices and no other, even to read. It does not cover
rights, times, owners and extended attributes of files; before 6.2, a file could be cut off. From
6.7 it holds TCP, from 6.12 signals and abstract sockets. The filter of `walls.py` holds all of it.
Source: https://docs.kernel.org/userspace-api/landlock.html
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterable

from steptime.isolate import kernel

from .walls import Wall

_SYS_CREATE_RULESET, _SYS_ADD_RULE, _SYS_RESTRICT_SELF = 444, 445, 446
_VERSION = 1
_PATH_BENEATH = 1

# Access rights by bit; to read a file is left free everywhere but in /dev.
_WRITE_FILE, _READ_FILE = 1 << 1, 1 << 2
_MAKE_AND_REMOVE = sum(1 << bit for bit in range(4, 13))
_REFER, _REFER_SINCE = 1 << 13, 2
_TRUNCATE, _TRUNCATE_SINCE = 1 << 14, 3
_TCP, _TCP_SINCE = 0b11, 4  # bind and connect
_ABSTRACT_SOCKETS, _SIGNALS, _SCOPE_SINCE = 1, 2, 6


class _Ruleset(ctypes.Structure):
    _fields_ = (
        ("handled_access_fs", ctypes.c_uint64),
        ("handled_access_net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"  # what `_pack_` implies; newer Pythons want it stated
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def version() -> int:
    """Return the kernel's version of Landlock; raise OSError where there is none."""
    return kernel.syscall(
        _SYS_CREATE_RULESET,
        None,
        ctypes.c_size_t(0),
        ctypes.c_uint32(_VERSION),
        what="landlock_create_ruleset",
    )


def restrict(folders: Iterable[str], devices: Iterable[str], walls: Iterable[Wall]) -> None:
    """Restrict this process, from now on, to write only below these folders and to these devices.

    Of `walls`, it holds what this kernel's Landlock can hold.

    Raises:
        OSError: this kernel has no Landlock, or it is switched off.
    """
    found = version()
    files = _WRITE_FILE | _READ_FILE | (_TRUNCATE if found >= _TRUNCATE_SINCE else 0)
    everything = files | _MAKE_AND_REMOVE | (_REFER if found >= _REFER_SINCE else 0)
    attributes, size = _attributes(everything, frozenset(walls), found)
    ruleset = kernel.syscall(
        _SYS_CREATE_RULESET,
        ctypes.byref(attributes),
        ctypes.c_size_t(size),
        ctypes.c_uint32(0),
        what="landlock_create_ruleset",
    )
    for folder in folders:
        _allow(ruleset, folder, everything)
    for device in devices:
        _allow(ruleset, device, files)
    for place in _read_everywhere():
        with contextlib.suppress(OSError):  # removed meanwhile, or not there
            _allow(ruleset, place, _READ_FILE)
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    kernel.syscall(
        _SYS_RESTRICT_SELF,
        ctypes.c_int(ruleset),
        ctypes.c_uint32(0),
        what="landlock_restrict_self",
    )
    os.close(ruleset)


def _read_everywhere() -> list[str]:
    """Return the places that together hold every file but those of /dev."""
    with os.scandir("/") as entries:
        found = [entry.path for entry in entries if not entry.is_symlink()]
    return [place for place in found if place != "/dev"] + ["/dev/shm"]


def _attributes(everything: int, walls: frozenset[Wall], found: int) -> tuple[_Ruleset, int]:
    """Return what is restricted, and how many bytes of it this kernel knows."""
    attributes = _Ruleset(handled_access_fs=everything)
    if Wall.NETWORK in walls and found >= _TCP_SINCE:
        attributes.handled_access_net = _TCP
    if found >= _SCOPE_SINCE:
        attributes.scoped = _ABSTRACT_SOCKETS if Wall.NETWORK in walls else 0
        attributes.scoped |= _SIGNALS if Wall.PROCESSES in walls else 0
    num_fields = 3 if found >= _SCOPE_SINCE else 2 if found >= _TCP_SINCE else 1
    return attributes, 8 * num_fields


def _allow(ruleset: int, place: str, access: int) -> None:
    descriptor = os.open(place, os.O_PATH | os.O_CLOEXEC)
    try:
        rule = _PathBeneath(allowed_access=access, parent_fd=descriptor)
        kernel.syscall(
            _SYS_ADD_RULE,
            ctypes.c_int(ruleset),
            ctypes.c_int(_PATH_BENEATH),
            ctypes.byref(rule),
            ctypes.c_uint32(0),
            what=f"landlock_add_rule for {place}",
        )
    finally:
        os.close(descriptor)
