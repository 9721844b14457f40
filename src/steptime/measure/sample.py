"""The machine's load while the command runs: `host.jsonl`, a line a second.

In: readers of the clock, of the machine's busy time, memory and processes. Out: lines in the
file. A look may fail; that is counted and never raised. What the load means is left to
`measure.steps`.
"""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from steptime.core.types import SCHEMA
from steptime.measure.host_memory import HostMemory, memory_reader
from steptime.measure.unwatched import Unwatched, UnwatchedFinder

_INTERVAL_S = 1.0
_MAX_COST_FRACTION = 0.005  # of one core; half of what we promise, the rest is the waiting


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessTimes:
    """CPU time of one process so far [s]: its own, and that of children it has waited for.

    `started` tells it from a later process with the same id. `layout` is where its stack begins,
    the same in a fork as in its mother; 0 where the machine does not say.
    """

    parent: int
    started: float
    own_s: float
    waited_s: float
    layout: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Readers:
    """Where the numbers come from; tests bring their own.

    Attributes:
        clock_s: monotonic time [s].
        unix_s: time of day [s].
        cost_s: CPU time of this process [s].
        busy_s: CPU time spent by the whole machine, over all cores [s].
        processes: every process of the machine by id.
        waited_s: CPU time of children that this process has waited for [s].
        memory: memory of the machine and of the command's control group.
        unwatched: of the command's processes, Pythons without a guest; each is told once.
    """

    clock_s: Callable[[], float]
    unix_s: Callable[[], float]
    cost_s: Callable[[], float]
    busy_s: Callable[[], float]
    processes: Callable[[], Mapping[int, ProcessTimes]]
    waited_s: Callable[[], float]
    memory: Callable[[], HostMemory]
    unwatched: Callable[[Mapping[int, int]], Iterable[Unwatched]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    clock_s: float
    busy_s: float
    job: Mapping[int, ProcessTimes]
    memory: HostMemory


class HostSampler:
    """Appends a line to `host.jsonl` each time `take` is called, from the second time on."""

    def __init__(self, path: Path, *, root_pid: int, num_cores: int, readers: Readers) -> None:
        self._path = path
        self._root_pid = root_pid
        self._num_cores = num_cores
        self._readers = readers
        self._waited_before_s = readers.waited_s()
        self._first: HostMemory | None = None
        self._last: _Look | None = None
        self._has_head = False
        self.num_failures = 0

    def take(self) -> float:
        """Look once; the time until the next look is due [s], longer where looking is dear."""
        before_s = self._readers.cost_s()
        self._try(lambda: self._look(has_ended=False))
        return max(_INTERVAL_S, (self._readers.cost_s() - before_s) / _MAX_COST_FRACTION)

    def take_last(self) -> None:
        """Look once more when the command has ended and was waited for."""
        self._try(lambda: self._look(has_ended=True))

    def _try(self, look: Callable[[], None]) -> None:
        try:
            look()
        except (OSError, psutil.Error, ValueError, LookupError):
            self.num_failures += 1

    def _look(self, *, has_ended: bool) -> None:
        last, readers = self._last, self._readers
        clock_s, busy_s = readers.clock_s(), readers.busy_s()
        known = last.job if last is not None else {}
        job = select_job(readers.processes(), self._root_pid, known)
        memory = readers.memory()
        self._first = self._first or memory
        self._last = _Look(clock_s=clock_s, busy_s=busy_s, job=job, memory=memory)
        if not self._has_head:
            self._append({"k": "head", "schema": SCHEMA, "num_cores": self._num_cores})
            self._has_head = True
        for found in readers.unwatched({pid: times.layout for pid, times in job.items()}):
            self._append({"k": "g", "pid": found.pid, "name": found.name})
        if last is None:
            return
        dt_s = clock_s - last.clock_s
        if dt_s <= 0:
            raise ValueError(f"`dt_s > 0` must hold, got {dt_s=}")
        before, after = last.job, job
        if has_ended:
            before, after = self._with_us(before, after)
        line = {"k": "h", "t_unix_s": round(readers.unix_s(), 3), "dt_s": round(dt_s, 4)}
        line["busy_cores"] = round(max(0.0, busy_s - last.busy_s) / dt_s, 3)
        line["job_cores"] = round(job_cpu_s(before, after) / dt_s, 3)
        self._append(line | _memory_fields(self._first, last.memory, memory))

    def _with_us(
        self, before: Mapping[int, ProcessTimes], after: Mapping[int, ProcessTimes]
    ) -> tuple[dict[int, ProcessTimes], dict[int, ProcessTimes]]:
        """Both with this process, to which the command handed all its time when it ended."""
        if self._root_pid not in before:
            return dict(before), dict(after)
        us = before[self._root_pid].parent
        then = ProcessTimes(parent=0, started=0.0, own_s=0.0, waited_s=self._waited_before_s)
        now = replace(then, waited_s=self._readers.waited_s())
        return {us: then, **before}, {us: now, **after}

    def _append(self, line: Mapping[str, object]) -> None:
        # Opened each time: the user may delete the folder, and no descriptor stays with us.
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(descriptor, (json.dumps(line) + "\n").encode())
        finally:
            os.close(descriptor)


def _memory_fields(first: HostMemory, last: HostMemory, now: HostMemory) -> dict[str, int | None]:
    """Memory in a line: what was read from swap since the last look, kills since the first."""
    return {
        "swap_in_bytes": _difference(now.swap_in_bytes, last.swap_in_bytes),
        "available_bytes": now.available_bytes,
        "oom_kills": _difference(now.oom_kills, first.oom_kills),
    }


def _difference(now: int | None, then: int | None) -> int | None:
    return None if now is None or then is None else max(0, now - then)


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


def system_readers(run_folder: Path, root_pid: int) -> Readers:
    """Readers of this machine, for the command that began as process `root_pid`."""
    return Readers(
        clock_s=time.monotonic,
        unix_s=time.time,
        cost_s=time.process_time,
        busy_s=_busy_s,
        processes=_read_proc if os.path.isfile("/proc/self/stat") else _read_psutil,
        waited_s=_waited_s,
        memory=memory_reader(root_pid),
        unwatched=UnwatchedFinder(run_folder).find,
    )


def _waited_s() -> float:
    times = os.times()
    return times.children_user + times.children_system


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
            field = dict(enumerate(stat[stat.rindex(b")") + 2 :].split(None, 26), start=3))
            found[int(name)] = ProcessTimes(
                parent=int(field[4]),
                started=float(field[22]),
                own_s=(int(field[14]) + int(field[15])) * tick_s,
                waited_s=(int(field[16]) + int(field[17])) * tick_s,
                layout=int(field[28]),
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
