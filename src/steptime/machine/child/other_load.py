"""How many cores other processes keep busy between two samples."""

from __future__ import annotations

import os
import resource
import time

_MIN_S = 0.1
"""A tick is 0.01 s; over a shorter time ticks say nothing, and the last result holds."""

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


class Others:
    """Busy time of the cores that we may use, without our own and our ended children's."""

    def __init__(self) -> None:
        self._cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
        self.num_cores = len(self._cores) or os.cpu_count() or 1
        self._last = self._read()
        self._found: float | None = None

    def sample(self) -> float | None:
        """Return the busy cores since the last sample; None where the system does not say."""
        now = self._read()
        if now is None or self._last is None:
            return None
        took_s, busy_s, own_s = (new - old for new, old in zip(now, self._last, strict=True))
        if took_s >= _MIN_S:
            # The two come from different counters, so the difference may be negative.
            self._found = round(max(0.0, busy_s - own_s) / took_s, 3)
            self._last = now
        return self._found

    def _read(self) -> tuple[float, float, float] | None:
        try:
            with open("/proc/stat", encoding="ascii", errors="replace") as file:
                busy_s = sum(self._busy(line) for line in file)
        except OSError:
            return None
        own = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        own_s = sum(usage.ru_utime + usage.ru_stime for usage in own)
        return time.monotonic(), busy_s, own_s

    def _busy(self, line: str) -> float:
        """Return user, nice, system, interrupt and stolen time of one of our cores."""
        name, *fields = line.split()
        number = name.removeprefix("cpu")
        if not number.isdigit() or (self._cores and int(number) not in self._cores):
            return 0.0
        ticks = [int(field) for field in fields[:8]]
        return (sum(ticks[:3]) + sum(ticks[5:])) * _TICK_S
