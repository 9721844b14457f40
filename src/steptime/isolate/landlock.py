"""Landlock: this process and everything it starts may write in some folders and nowhere else.

It is the kernel's own guard for unprivileged processes, available from Linux 5.13 where it is
switched on. It does not cover rights, times, owners and extended attributes of files.
Source: https://docs.kernel.org/userspace-api/landlock.html
"""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Iterable, Iterator

from . import kernel

_SYS_CREATE_RULESET, _SYS_ADD_RULE, _SYS_RESTRICT_SELF = 444, 445, 446
_VERSION = 1
_PATH_BENEATH = 1

# Access rights by bit; rights that only read are left free.
_WRITE_FILE = 1 << 1
_MAKE_AND_REMOVE = sum(1 << bit for bit in range(4, 13))
_REFER, _REFER_SINCE = 1 << 13, 2
_TRUNCATE, _TRUNCATE_SINCE = 1 << 14, 3

# Devices that give access to the memory or ports of the machine itself.
_NO_DEVICE = frozenset({"mem", "kmem", "port"})


class _Ruleset(ctypes.Structure):
    _fields_ = (("handled_access_fs", ctypes.c_uint64),)


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


def restrict_writes(folders: Iterable[str]) -> None:
    """Restrict this process, from now on, to write only below these folders and to devices.

    Raises:
        OSError: this kernel has no Landlock, or it is switched off.
    """
    found = version()
    files = _WRITE_FILE | (_TRUNCATE if found >= _TRUNCATE_SINCE else 0)
    everything = files | _MAKE_AND_REMOVE | (_REFER if found >= _REFER_SINCE else 0)
    attributes = _Ruleset(handled_access_fs=everything)
    ruleset = kernel.syscall(
        _SYS_CREATE_RULESET,
        ctypes.byref(attributes),
        ctypes.c_size_t(ctypes.sizeof(attributes)),
        ctypes.c_uint32(0),
        what="landlock_create_ruleset",
    )
    for folder in folders:
        _allow(ruleset, folder, everything)
    for device in _devices("/dev"):
        _allow(ruleset, device, files)
    if os.geteuid() != 0:  # root could change the machine's settings there
        _allow(ruleset, "/proc", files)
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    kernel.syscall(
        _SYS_RESTRICT_SELF,
        ctypes.c_int(ruleset),
        ctypes.c_uint32(0),
        what="landlock_restrict_self",
    )
    os.close(ruleset)


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


def _devices(folder: str) -> Iterator[str]:
    """Yield the character devices, such as terminals, /dev/null and GPUs, but no disks."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            if entry.path != "/dev/shm":
                yield from _devices(entry.path)
        elif entry.name not in _NO_DEVICE:
            try:
                is_device = stat.S_ISCHR(entry.stat(follow_symlinks=False).st_mode)
            except OSError:
                continue
            if is_device:
                yield entry.path
