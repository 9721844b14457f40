"""The machine's load while the command runs: `host.jsonl`, a line a second.

In: readers of the clock, of the machine's busy time and of its processes. Out: lines in the
file. A look may fail; that is counted and never raised. What the load means is left to
`measure.steps`.
"""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from steptime.core.types import SCHEMA

_INTERVAL_S = 1.0
_MAX_COST_FRACTION = 0.005  # of one core; half of what we promise, the rest is the waiting


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessTimes:
    """CPU time of one process so far [s]: its own, and that of children it has waited for.

    `started` tells it from a later process with the same id.
    """

    parent: int
    started: float
    own_s: float
    waited_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Readers:
    """Where the numbers come from; tests bring their own.

    Attributes:
        clock_s: monotonic time [s].
        unix_s: time of day [s].
        cost_s: CPU time of this process [s].
        busy_s: CPU time spent by the whole machine, over all cores [s].
        processes: every process of the machine by id.
    """

    clock_s: Callable[[], float]
    unix_s: Callable[[], float]
    cost_s: Callable[[], float]
    busy_s: Callable[[], float]
    processes: Callable[[], Mapping[int, ProcessTimes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    clock_s: float
    busy_s: float
    job: Mapping[int, ProcessTimes]


class HostSampler:
    """Appends one line to `host.jsonl` each time `take` is called, from the second time on."""

    def __init__(self, path: Path, *, root_pid: int, num_cores: int, readers: Readers) -> None:
        self._path = path
        self._root_pid = root_pid
        self._num_cores = num_cores
        self._readers = readers
        self._last: _Look | None = None
        self._has_head = False
        self.num_failures = 0

    def take(self) -> float:
        """Look once; the time until the next look is due [s], longer where looking is dear."""
        before_s = self._readers.cost_s()
        try:
            self._look()
        except (OSError, psutil.Error, ValueError, LookupError):
            self.num_failures += 1
        return max(_INTERVAL_S, (self._readers.cost_s() - before_s) / _MAX_COST_FRACTION)

    def _look(self) -> None:
        last, readers = self._last, self._readers
        clock_s, busy_s = readers.clock_s(), readers.busy_s()
        known = last.job if last is not None else {}
        job = select_job(readers.processes(), self._root_pid, known)
        self._last = _Look(clock_s=clock_s, busy_s=busy_s, job=job)
        if not self._has_head:
            self._append({"k": "head", "schema": SCHEMA, "num_cores": self._num_cores})
            self._has_head = True
        if last is None:
            return
        dt_s = clock_s - last.clock_s
        if dt_s <= 0:
            raise ValueError(f"`dt_s > 0` must hold, got {dt_s=}")
        line = {"k": "h", "t_unix_s": round(readers.unix_s(), 3), "dt_s": round(dt_s, 4)}
        line["busy_cores"] = round(max(0.0, busy_s - last.busy_s) / dt_s, 3)
        line["job_cores"] = round(job_cpu_s(last.job, job) / dt_s, 3)
        self._append(line)

    def _append(self, line: Mapping[str, object]) -> None:
        # Opened each time: the user may delete the folder, and no descriptor stays with us.
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(descriptor, (json.dumps(line) + "\n").encode())
        finally:
            os.close(descriptor)


def select_job(
    processes: Mapping[int, ProcessTimes], root_pid: int, known: Mapping[int, ProcessTimes]
) -> dict[int, ProcessTimes]:
    """The command's processes: below its first one, or known from before (orphans stay)."""
    job = {pid for pid, then in known.items() if _is_same(processes.get(pid), then)}
    job |= {root_pid} & processes.keys()
    children: dict[int, list[int]] = {}
    for pid, process in processes.items():
        children.setdefault(process.parent, []).append(pid)
    pending = list(job)
    while pending:
        new = [pid for pid in children.get(pending.pop(), []) if pid not in job]
        job.update(new)
        pending.extend(new)
    return {pid: processes[pid] for pid in job}


def job_cpu_s(before: Mapping[int, ProcessTimes], after: Mapping[int, ProcessTimes]) -> float:
    """CPU time the command's processes used between two looks [s], never negative.

    A process that ended hands its whole time to the parent that waits for it; what was known of
    it at the look before is taken off there. Time of a process nobody waited for is lost.
    """
    ended = {pid for pid, then in before.items() if not _is_same(after.get(pid), then)}
    known_s: defaultdict[int, float] = defaultdict(float)
    for pid in ended:
        known_s[_heir(pid, before, ended)] += before[pid].own_s + before[pid].waited_s
    used_s = 0.0
    for pid, now in after.items():
        then = None if pid in ended else before.get(pid)
        own_s, waited_s = (then.own_s, then.waited_s) if then else (0.0, 0.0)
        used_s += max(0.0, now.own_s - own_s)
        used_s += max(0.0, now.waited_s - waited_s - known_s[pid])
    return used_s


def _heir(pid: int, before: Mapping[int, ProcessTimes], ended: set[int]) -> int:
    """The nearest ancestor that is still there."""
    while pid in ended:
        pid = before[pid].parent
    return pid


def _is_same(now: ProcessTimes | None, then: ProcessTimes) -> bool:
    return now is not None and now.started == then.started


def system_readers() -> Readers:
    """Readers of this machine."""
    return Readers(
        clock_s=time.monotonic,
        unix_s=time.time,
        cost_s=time.process_time,
        busy_s=_busy_s,
        processes=_read_proc if os.path.isfile("/proc/self/stat") else _read_psutil,
    )


def _busy_s() -> float:
    """Time stolen by the hypervisor counts: to us it is somebody else's work."""
    times = psutil.cpu_times()._asdict()
    # Guests' time is in `user` and `nice` already; waiting for a disk keeps no core busy.
    idle = ("idle", "iowait", "guest", "guest_nice")
    return float(sum(value for name, value in times.items() if name not in idle))


def _read_proc() -> dict[int, ProcessTimes]:
    """One read a process: five times cheaper than psutil, and nodes with 2,000 of them exist."""
    tick_s = 1.0 / os.sysconf("SC_CLK_TCK")
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (stat := _read_stat(name)) is not None:
            # Behind the name in brackets, which may hold anything; numbered as in proc(5).
            field = dict(enumerate(stat[stat.rindex(b")") + 2 :].split(None, 20), start=3))
            found[int(name)] = ProcessTimes(
                parent=int(field[4]),
                started=float(field[22]),
                own_s=(int(field[14]) + int(field[15])) * tick_s,
                waited_s=(int(field[16]) + int(field[17])) * tick_s,
            )
    return found


def _read_stat(pid: str) -> bytes | None:
    try:
        descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
        try:
            return os.read(descriptor, 2048)
        finally:
            os.close(descriptor)
    except OSError:
        return None  # ended meanwhile


def _read_psutil() -> dict[int, ProcessTimes]:
    found = {}
    for process in psutil.process_iter(["ppid", "create_time", "cpu_times"]):
        times = process.info["cpu_times"]
        if times is not None:
            found[process.pid] = ProcessTimes(
                parent=process.info["ppid"],
                started=process.info["create_time"],
                own_s=times.user + times.system,
                waited_s=getattr(times, "children_user", 0.0)
                + getattr(times, "children_system", 0.0),
            )
    return found
