"""Identifies a process for good: its id is used again, but not in the same tick of the same boot.

The guest writes these fields about its own process, and whoever reads a record compares them with
what the kernel says. Everything is None where there is no /proc. What a process has started is read
here, too.
"""

from __future__ import annotations

import os
from typing import Any

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_NAMESPACE = "/proc/self/ns/pid"
_ENDED = (b"Z", b"X", b"x")  # a zombie has ended; whether somebody waits for it does not matter
_STATE, _PARENT, _STARTED = (
    0,
    1,
    19,
)  # behind the name in brackets; proc(5) counts from the name's place


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


def children(pid: int) -> list[int]:
    """Return what the threads of a process have started and what became its own, from /proc.

    It is quick however many processes there are. While one of them ends, the kernel may leave out
    another: whoever must have all asks again, or asks for the `descendants`.
    """
    folder = f"/proc/{pid}/task"
    try:
        texts = [_read_whole(f"{folder}/{thread}/children") for thread in os.listdir(folder)]
    except OSError:  # a kernel without these lists, or a process that has ended
        return _children_of_all().get(pid, [])
    return [int(word) for text in texts for word in text.split()]


def descendants(pid: int) -> list[int]:
    """Return the processes below a process, its children first; none where there is no /proc.

    Each process names its parent, so none is missed for another that has just ended.
    """
    of = _children_of_all()
    found = list(of.get(pid, ()))
    for here in found:  # it grows as they are found
        found += of.get(here, ())
    return found


def _children_of_all() -> dict[int, list[int]]:
    """Return the children of each process that has any."""
    of: dict[int, list[int]] = {}
    for pid in _list_processes():
        fields = (_read(f"/proc/{pid}/stat") or b"").rpartition(b")")[2].split()
        if len(fields) > _PARENT:
            of.setdefault(int(fields[_PARENT]), []).append(pid)
    return of


def _list_processes() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    except OSError:
        return []


def _read_whole(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


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
