"""What others do to the cores between two samples: load, stolen time, heat."""

from __future__ import annotations

import os
import resource
import time
from glob import glob
from typing import NamedTuple

_MIN_S = 0.1
"""A tick is 0.01 s; over a shorter time ticks say nothing, and the last result holds."""

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_STEAL = 7  # its place among the fields of /proc/stat
_THROTTLES = "/sys/devices/system/cpu/cpu[0-9]*/thermal_throttle/core_throttle_count"


class _Counters(NamedTuple):
    """Core-seconds since the machine or this process started."""

    at_s: float
    busy_s: float
    own_s: float
    stolen_s: float


class LoadSeen(NamedTuple):
    """What was seen between two samples; None where the system does not say.

    others_cores: busy cores, without our own and our ended children's; stolen time is in it.
    stolen_cores: of these, what the hypervisor gave to others.
    num_throttles: how often a core was slowed down for its heat.
    """

    others_cores: float | None = None
    stolen_cores: float | None = None
    num_throttles: int | None = None


class Others:
    """The load of others on the cores that we may use."""

    def __init__(self) -> None:
        self._cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
        self.num_cores = len(self._cores) or os.cpu_count() or 1
        self._last = self._read()
        self._throttles = _read_throttles()
        self._found = LoadSeen()

    def sample(self) -> LoadSeen:
        """Return the load since the last sample; over a short time, the last result holds."""
        now = self._read()
        if now is None or self._last is None:
            return LoadSeen()
        took_s, busy_s, own_s, stolen_s = (
            new - old for new, old in zip(now, self._last, strict=True)
        )
        if took_s >= _MIN_S:
            throttles, before = _read_throttles(), self._throttles
            self._throttles = throttles
            self._last = now
            self._found = LoadSeen(
                # The two come from different counters, so the difference may be negative.
                round(max(0.0, busy_s - own_s) / took_s, 3),
                round(max(0.0, stolen_s) / took_s, 3),
                None if throttles is None or before is None else max(0, throttles - before),
            )
        return self._found

    def _read(self) -> _Counters | None:
        try:
            with open("/proc/stat", encoding="ascii", errors="replace") as file:
                rows = [self._ticks(line) for line in file]
        except OSError:
            return None
        own = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        own_s = sum(usage.ru_utime + usage.ru_stime for usage in own)
        busy_s, stolen_s = (sum(row[at] for row in rows) * _TICK_S for at in (0, 1))
        return _Counters(time.monotonic(), busy_s, own_s, stolen_s)

    def _ticks(self, line: str) -> tuple[int, int]:
        """Return one of our cores' busy and stolen ticks; busy ones include the stolen ones."""
        name, *fields = line.split()
        number = name.removeprefix("cpu")
        if not number.isdigit() or (self._cores and int(number) not in self._cores):
            return 0, 0
        ticks = [int(field) for field in fields[:8]]
        stolen = ticks[_STEAL] if len(ticks) > _STEAL else 0
        return sum(ticks[:3]) + sum(ticks[5:]), stolen  # all but idle and waiting for a disk


def _read_throttles() -> int | None:
    total = None
    for path in glob(_THROTTLES):
        try:
            with open(path, encoding="ascii") as file:
                total = (total or 0) + int(file.read())
        except (OSError, ValueError):
            continue
    return total
