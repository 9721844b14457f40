"""Memory of the machine as it affects the command: swap, what is left, kills by the kernel.

In: the files of the kernel, or psutil where there are none. Out: a `HostMemory`, with None for what
the machine does not say. The limit of the command's control group counts, in both versions of
control groups. `watch.host_sampler` decides when to sample.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from steptime.core.devices.control_groups import find_group, lines_of

_PROC = Path("/proc")
_NO_LIMIT_BYTES = 1 << 60  # version 1 writes a number near 2**63 for "no limit"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostMemory:
    """One sample.

    Attributes:
        swap_in_bytes: read back from swap since the machine started.
        available_bytes: what can be allocated without swapping.
        oom_kills: processes killed by the out-of-memory killer since the group or the machine
            started.
        cached_bytes: page cache of the machine, without what exists in memory only (tmpfs).
    """

    swap_in_bytes: int | None = None
    available_bytes: int | None = None
    oom_kills: int | None = None
    cached_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Files:
    """The names of a control group's files in one version, and the words in them."""

    limit: str
    usage: str
    cache: tuple[str, ...]
    kills: str


_V1 = _Files(
    limit="memory.limit_in_bytes",
    usage="memory.usage_in_bytes",
    cache=("total_inactive_file", "total_active_file"),
    kills="memory.oom_control",
)
_V2 = _Files(
    limit="memory.max",
    usage="memory.current",
    cache=("inactive_file", "active_file"),
    kills="memory.events",
)


def memory_reader(pid: int, *, proc: Path = _PROC) -> Callable[[], HostMemory]:
    """Return a reader for the group that the process is in now: a command rarely leaves it."""
    if not (proc / "vmstat").is_file():
        return _read_psutil
    files, folders = _find_group(pid, proc=proc)

    def read() -> HostMemory:
        machine = _read_words(proc / "vmstat")
        pages = machine.get("pswpin")
        kills = _read_words(folders[0] / files.kills).get("oom_kill") if folders else None
        info = _read_words(proc / "meminfo")
        left = [_bytes(info, "MemAvailable:"), *(_available_in(files, path) for path in folders)]
        known = [value for value in left if value is not None]
        cached = _bytes(info, "Cached:")  # with shared memory, which is on no disk
        return HostMemory(
            swap_in_bytes=None if pages is None else pages * os.sysconf("SC_PAGE_SIZE"),
            available_bytes=min(known, default=None),
            oom_kills=machine.get("oom_kill") if kills is None else kills,
            cached_bytes=None if cached is None else max(0, cached - (_bytes(info, "Shmem:") or 0)),
        )

    return read


def read_group_limit(pid: int, *, proc: Path = _PROC) -> int | None:
    """Return the memory limit of the process's control groups [bytes]; None without one."""
    files, folders = _find_group(pid, proc=proc)
    limits = [_limit(files, folder) for folder in folders]
    return min((limit for limit in limits if limit is not None), default=None)


def _find_group(pid: int, *, proc: Path = _PROC) -> tuple[_Files, tuple[Path, ...]]:
    """Return the folders of the process's memory group, from its own up to the mounted one."""
    group = find_group("memory", v1_file=_V1.usage, v2_file=_V2.usage, pid=pid, proc=proc)
    if group is None:
        return _V2, ()
    return (_V2 if group.is_v2 else _V1), group.folders


def _bytes(info: Mapping[str, int], word: str) -> int | None:
    return info[word] * 1024 if word in info else None


def _available_in(files: _Files, folder: Path) -> int | None:
    """Return what the group may still take; file cache is free, as the kernel drops it first."""
    limit, usage = _limit(files, folder), _number(folder / files.usage)
    if limit is None or usage is None:
        return None
    statistics = _read_words(folder / "memory.stat")
    return max(0, limit - usage + sum(statistics.get(word, 0) for word in files.cache))


def _limit(files: _Files, folder: Path) -> int | None:
    limit = _number(folder / files.limit)
    return None if limit is None or limit >= _NO_LIMIT_BYTES else limit


def _read_words(path: Path) -> dict[str, int]:
    """Return the lines `word number` of a kernel file; empty if it cannot be read."""
    found = {}
    for line in lines_of(path):
        parts = line.split(None, 2)
        with suppress(ValueError, IndexError):
            found[parts[0]] = int(parts[1])
    return found


def _number(path: Path) -> int | None:
    with suppress(ValueError):
        return int("".join(lines_of(path)))
    return None  # `max`, or no such file


def _read_psutil() -> HostMemory:
    return HostMemory(
        swap_in_bytes=psutil.swap_memory().sin, available_bytes=psutil.virtual_memory().available
    )
