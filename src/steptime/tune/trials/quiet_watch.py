"""Waits, up to a limit, until other programs leave the machine alone.

In: how to read the load, and how long to wait. Out: whether the machine became quiet. No trial of
ours runs meanwhile, so all load is somebody else's.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import psutil

QUIET_CORES = 0.1
"""Below it wall times of a quiet and of this machine agreed."""

_POLL_S = 0.5
_LONGEST_WAIT_SHARE = 1 / 60  # of the budget, at once: most neighbors stay longer, or go sooner
_ALL_WAITS_SHARE = 1 / 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Busy time of the whole machine and of this process, in core-seconds, at a time [s]."""

    at_s: float
    busy_s: float
    own_s: float


def read_load() -> Load:
    """The load of this machine so far."""
    times = psutil.cpu_times()._asdict()
    idle = ("idle", "iowait", "guest", "guest_nice")
    busy_s = float(sum(value for name, value in times.items() if name not in idle))
    return Load(at_s=time.monotonic(), busy_s=busy_s, own_s=time.process_time())


@dataclass(frozen=True, slots=True, kw_only=True)
class Waited:
    """The result of a wait: how many cores others took at its end, and how long it was."""

    is_quiet: bool
    others_cores: float
    waited_s: float


class QuietWatch:
    """Waits before trials; `tell` gets the result of each wait."""

    def __init__(
        self,
        budget_s: float,
        tell: Callable[[Waited], None],
        *,
        read: Callable[[], Load] = read_load,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._once_s = budget_s * _LONGEST_WAIT_SHARE
        self._left_s = budget_s * _ALL_WAITS_SHARE
        self._tell = tell
        self._read = read
        self._sleep = sleep

    def wait(self) -> Waited:
        """Return when others took less than a tenth of a core, or the limit is reached."""
        begin = last = self._read()
        while True:
            self._sleep(_POLL_S)
            now = self._read()
            waited = _compare(begin, last, now)
            spent_s = waited.waited_s
            if waited.is_quiet or spent_s >= min(self._once_s, self._left_s):
                self._left_s -= spent_s
                self._tell(waited)
                return waited
            last = now


def _compare(begin: Load, last: Load, now: Load) -> Waited:
    dt_s = max(1e-3, now.at_s - last.at_s)
    others = max(0.0, (now.busy_s - last.busy_s) - (now.own_s - last.own_s)) / dt_s
    return Waited(
        is_quiet=others < QUIET_CORES, others_cores=others, waited_s=now.at_s - begin.at_s
    )
