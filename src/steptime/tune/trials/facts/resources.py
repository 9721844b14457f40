"""How much of the machine the command may use, here and now, within its affinity and container.

In: the files of the kernel. Out: numbers for `Facts`. Which machine it is, however much of it may
be used, says `core.machine_identity`.
"""

from __future__ import annotations

import math
import os
from contextlib import suppress
from pathlib import Path

import psutil

from steptime.core.devices.control_groups import read_cpu_quota
from steptime.levers.host.cores import nodes_of
from steptime.watch.host.host_memory import memory_reader

ROOT = Path("/")


def count_cores(*, root: Path = ROOT) -> int:
    """Logical cores that this process and its children may use, at least 1.

    A quota of a container counts as that many cores, rounded up: threads beyond it are
    stopped for the rest of each period.
    """
    cores = len(_allowed_cores()) or os.cpu_count() or 1
    quota = read_cpu_quota(proc=root / "proc")
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


def count_nodes(*, root: Path = ROOT) -> int | None:
    """NUMA nodes with one of those cores; None where the kernel does not say."""
    return len(nodes_of(_allowed_cores(), str(root))) or None


def read_available_bytes() -> int | None:
    """Memory that can still be taken without swapping [bytes], here or in this container."""
    return memory_reader(os.getpid())().available_bytes


def _allowed_cores() -> frozenset[int]:
    if not hasattr(os, "sched_getaffinity"):  # macOS
        return frozenset()
    return frozenset(os.sched_getaffinity(0))
