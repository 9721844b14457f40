"""System calls that Python does not offer; they raise OSError as Python's own do.

Linux only. The launcher loads this module; nothing here decides anything.
"""

from __future__ import annotations

import ctypes
import os

CLONE_NEWNS = 0x00020000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 1 << 18
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MNT_DETACH = 2

PR_SET_PDEATHSIG = 1
PR_CAPBSET_DROP = 24
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
CAPS_KEPT = frozenset(
    (
        *(0, 1, 2, 3, 4),  # rights of files: CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, FSETID
        *(6, 7),  # SETGID, SETUID
        *(14, 23, 24, 38),  # IPC_LOCK, SYS_NICE, SYS_RESOURCE, PERFMON
    )
)

# System calls from 424 on have the same numbers on every architecture.
_SYS_MOUNT_SETATTR = 442
_AT_FDCWD = -100
_AT_RECURSIVE = 0x8000
_MOUNT_ATTR_RDONLY = 1
_MOUNT_ATTR_NODEV = 4

_libc = ctypes.CDLL(None, use_errno=True)


class _MountAttributes(ctypes.Structure):
    _fields_ = (
        ("set", ctypes.c_uint64),
        ("clear", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def syscall(number: int, *arguments: object, what: str) -> int:
    """Make a system call by its number."""
    call = _libc.syscall
    call.restype = ctypes.c_long
    return _check(call(ctypes.c_long(number), *arguments), what)


def unshare(flags: int) -> None:
    """Leave the parent's namespaces."""
    _check(_libc.unshare(ctypes.c_int(flags)), "unshare")


def mount(source: str, target: str, kind: str | None, flags: int = 0, data: str = "") -> None:
    """Mount, or bind, or change how mounts propagate."""
    result = _libc.mount(
        os.fsencode(source),
        os.fsencode(target),
        None if kind is None else kind.encode(),
        ctypes.c_ulong(flags),
        os.fsencode(data) if data else None,
    )
    _check(result, f"mount {kind or 'bind'} on {target}")


def make_read_only(target: str, *, recursive: bool = True, has_devices: bool = False) -> None:
    """Let nobody create, change or remove a file there; sockets work, and devices if asked."""
    flags = _MOUNT_ATTR_RDONLY | (0 if has_devices else _MOUNT_ATTR_NODEV)
    attributes = _MountAttributes(set=flags)
    syscall(
        _SYS_MOUNT_SETATTR,
        ctypes.c_int(_AT_FDCWD),
        os.fsencode(target),
        ctypes.c_uint(_AT_RECURSIVE if recursive else 0),
        ctypes.byref(attributes),
        ctypes.c_size_t(ctypes.sizeof(attributes)),
        what=f"mount_setattr on {target}",
    )


def pivot_root_here() -> None:
    """Make the working directory, which is a mount, the root, and unmount the old root."""
    _check(_libc.pivot_root(b".", b"."), "pivot_root")
    _check(_libc.umount2(b".", ctypes.c_int(MNT_DETACH)), "umount")


def prctl(option: int, value: int) -> None:
    """Set an attribute of this process."""
    zero = ctypes.c_ulong(0)
    result = _libc.prctl(ctypes.c_int(option), ctypes.c_ulong(value), zero, zero, zero)
    _check(result, f"prctl {option}")
