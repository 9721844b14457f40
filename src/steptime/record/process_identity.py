"""Identifies a process for good: its id is used again, but not in the same tick of the same boot.

The guest writes these fields about its own process, and whoever reads a record compares them with
what the kernel says. Everything is None where there is no /proc.
"""

from __future__ import annotations

import os
from typing import Any

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_NAMESPACE = "/proc/self/ns/pid"
_ENDED = (b"Z", b"X", b"x")  # a zombie has ended; whether somebody waits for it does not matter
_STATE, _STARTED = 0, 19  # behind the name in brackets; proc(5) counts from the name's place


def read_boot() -> str | None:
    """Return the id that the kernel drew when this machine was started."""
    text = _read(_BOOT_ID)
    return None if text is None else text.decode("ascii", "replace").strip()


def read_started(pid: int | str = "self") -> int | None:
    """Return when a process was started, in ticks since the boot; None if it has ended."""
    stat = _read(f"/proc/{pid}/stat")
    if stat is None:
        return None
    fields = stat.rpartition(b")")[2].split()
    if len(fields) <= _STARTED or fields[_STATE] in _ENDED:
        return None
    return int(fields[_STARTED])


def read_host() -> str:
    """Return the name of this machine."""
    return os.uname().nodename


def read_namespace() -> str | None:
    """Return the namespace in which this process has its id; a container has its own."""
    try:
        return os.readlink(_NAMESPACE)
    except OSError:
        return None


def describe_own_process() -> dict[str, Any]:
    """Return the fields that identify this process, for a line of the record."""
    return {
        "started": read_started(),
        "boot": read_boot(),
        "host": read_host(),
        "pid_space": read_namespace(),
    }


def _read(path: str) -> bytes | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return os.read(descriptor, 4096)
    except OSError:
        return None
    finally:
        os.close(descriptor)
