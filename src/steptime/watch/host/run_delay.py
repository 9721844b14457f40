"""How long the threads of a command wanted a core and got none, as the kernel counts it.

In: `/proc/PID/schedstat` and `/proc/PID/task/TID/schedstat`, whose second number is the time in the
run queue [ns]. Out: the part of an interval for which the most delayed thread waited so. Where the
kernel does not count it, nothing is said.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping

from steptime.watch.host.processes import read_file

MAX_THREADS = 32
"""As many threads of a process are read: those of one team wait alike."""

MAX_PROCESSES = 16
"""Of as many busy processes all threads are read; of all others the first thread alone."""

Delays = Mapping[tuple[int, int], int]
"""Time in the run queue by process and thread [ns]."""


class RunDelay:
    """Follows the command's processes from sample to sample."""

    def __init__(self) -> None:
        self._last: Delays = {}

    def take(self, job: Collection[int], busy: Collection[int], dt_s: float) -> float | None:
        """Return the largest part of the last `dt_s` for which a thread waited for a core.

        Args:
            job: the command's processes.
            busy: those that used a core; their threads are read one by one.
            dt_s: time since the last call [s].

        Returns:
            A fraction of 0 to 1; None where no thread was read twice.
        """
        now = _read(job, sorted(busy)[:MAX_PROCESSES])
        grown = [max(0, ns - self._last[key]) for key, ns in now.items() if key in self._last]
        self._last = now
        return min(1.0, max(grown) * 1e-9 / dt_s) if grown and dt_s > 0 else None


def _read(job: Collection[int], busy: Collection[int]) -> dict[tuple[int, int], int]:
    found = {}
    for pid in job:
        threads = _threads(pid) if pid in busy else [pid]
        for thread in threads:
            delay_ns = read_delay(pid, thread)
            if delay_ns is not None:
                found[pid, thread] = delay_ns
    return found


def _threads(pid: int) -> list[int]:
    try:
        return sorted(map(int, os.listdir(f"/proc/{pid}/task")))[:MAX_THREADS]
    except OSError:
        return []  # ended meanwhile, or there is no /proc


def read_delay(pid: int, thread: int) -> int | None:
    """Return how long a thread has waited for a core so far [ns]; None where nobody counts it."""
    words = (read_file(f"/proc/{pid}/task/{thread}/schedstat", 128) or b"").split()
    # A kernel that does not count says zero for everything, the time on a core included.
    return int(words[1]) if len(words) == 3 and words[0] != b"0" else None
