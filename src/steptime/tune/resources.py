"""What of the machine's cores and memory the command may use: affinity and containers count.

In: the files of the kernel. Out: numbers for `Facts`.
"""

from __future__ import annotations

import math
import os
from contextlib import suppress
from pathlib import Path

import psutil

from steptime.measure.host_memory import memory_reader

ROOT = Path("/")


def count_cores(*, root: Path = ROOT) -> int:
    """Logical cores that this process and its children may use, at least 1.

    A quota of a container counts as that many cores, rounded up: threads beyond it are
    stopped for the rest of each period.
    """
    cores = len(_allowed_cores()) or os.cpu_count() or 1
    quota = _quota(root)
    return cores if quota is None else max(1, min(cores, math.ceil(quota)))


def count_physical_cores(*, root: Path = ROOT) -> int | None:
    """Cores among those, with those that share one counted once; None where not known."""
    siblings = set()
    for core in _allowed_cores():
        path = root / f"sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list"
        with suppress(OSError):
            siblings.add(path.read_text().strip())
    physical = len(siblings) or psutil.cpu_count(logical=False)
    return None if physical is None else min(physical, count_cores(root=root))


def read_available_bytes() -> int | None:
    """Memory that can still be taken without swapping [bytes], here or in this container."""
    return memory_reader(os.getpid())().available_bytes


def _allowed_cores() -> frozenset[int]:
    if not hasattr(os, "sched_getaffinity"):  # macOS
        return frozenset()
    return frozenset(os.sched_getaffinity(0))


def _quota(root: Path) -> float | None:
    """Cores that the control groups of this process may use at once; None without a limit."""
    quotas = []
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        files: tuple[str, ...]
        if controllers == "":  # version 2
            mount, files = root / "sys/fs/cgroup", ("cpu.max",)
        elif "cpu" in controllers.split(","):
            mount, files = root / "sys/fs/cgroup/cpu", ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        else:
            continue
        # In a container the path may be the host's; then the mount itself is the group.
        own = Path(os.path.normpath(mount / path.lstrip("/")))
        inside = [folder for folder in (own, *own.parents) if folder.is_relative_to(mount)]
        quotas += [quota for f in {*inside, mount} if (quota := _read_quota(f, files)) is not None]
    return min(quotas, default=None)


def _read_quota(folder: Path, files: tuple[str, ...]) -> float | None:
    """Quota over period of one group; `max` and -1 stand for none."""
    words = " ".join(" ".join(_lines(folder / file)) for file in files).split()
    with suppress(ValueError):
        quota, period = (float(word) for word in words)
        if quota > 0 and period > 0:
            return quota / period
    return None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
