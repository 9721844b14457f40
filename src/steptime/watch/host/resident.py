"""Resident memory of the command's processes, with shared pages counted once.

In: the resident memory of each process, and its proportional part, for which the kernel walks all
pages. Out: a sum for each sample. The expensive number is read rarely; in between, the shared part
that it showed is subtracted from the cheap one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from steptime.watch.host.processes import ProcessTimes, is_same

MIN_BYTES = 32 << 20
"""Smaller processes share little but libraries."""

MAX_BYTES = 8 << 30
"""Larger processes are counted whole: the walk takes tens of milliseconds, during which some
kernels let the process map no memory."""

COST_FRACTION = 0.001
"""Of one core, for the expensive reads."""

_CREDIT_S = 0.05  # at the start: about twenty processes
_MAX_CREDIT_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class _SeenProcess:
    process: ProcessTimes
    shared_bytes: int
    at_s: float


class ResidentBytes:
    """Knows how much of each process is shared.

    Args:
        read_part: reads the proportional set size of a process, None where the machine does not
            say.
        clock_s: monotonic time [s].
        cost_s: CPU time of this process [s].
    """

    def __init__(
        self,
        read_part: Callable[[int], int | None],
        *,
        clock_s: Callable[[], float],
        cost_s: Callable[[], float],
    ) -> None:
        self._read_part = read_part
        self._clock_s = clock_s
        self._cost_s = cost_s
        self._seen: dict[int, _SeenProcess] = {}
        self._credit_s = _CREDIT_S
        self._last_s: float | None = None

    def update(self, job: Mapping[int, ProcessTimes]) -> None:
        """Read the shared part of processes that are due: new ones first, then the oldest."""
        now_s = self._clock_s()
        if self._last_s is not None:
            earned_s = (now_s - self._last_s) * COST_FRACTION
            self._credit_s = min(_MAX_CREDIT_S, self._credit_s + earned_s)
        self._last_s = now_s
        self._seen = {p: s for p, s in self._seen.items() if is_same(job.get(p), s.process)}
        large = {p: b for p, t in job.items() if (b := t.resident_bytes or 0) >= MIN_BYTES}
        if len(large) < 2:
            return  # nobody to share with
        fresh = [pid for pid, size in large.items() if size <= MAX_BYTES]
        for pid in sorted(fresh, key=lambda p: self._seen[p].at_s if p in self._seen else 0.0):
            if self._credit_s <= 0:
                return
            before_s = self._cost_s()
            part = self._read_part(pid)
            self._credit_s -= self._cost_s() - before_s
            if part is None:
                return
            shared = max(0, large[pid] - part)
            self._seen[pid] = _SeenProcess(process=job[pid], shared_bytes=shared, at_s=now_s)

    def total(self, job: Mapping[int, ProcessTimes], pids: Collection[int]) -> int | None:
        """Return the memory of these processes [bytes]; None where the machine does not say."""
        found = [
            max(0, size - (self._seen[pid].shared_bytes if pid in self._seen else 0))
            for pid in pids
            if pid in job and (size := job[pid].resident_bytes) is not None
        ]
        return sum(found) if found else None
