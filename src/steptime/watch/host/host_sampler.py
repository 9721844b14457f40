"""The machine's load while the command runs: `host.jsonl`, a line each second.

In: readers of the clock, of the machine and of its processes. Out: lines in the file. A sample may
fail; that is counted and never raised. Where samples are expensive they become rarer; those of all
the machine's processes have a pace of their own. Others decide what the load means.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from steptime.core.devices.control_groups import read_cpu_quota, read_quota_periods
from steptime.core.schema import SCHEMA
from steptime.record import kinds
from steptime.watch.host.host_memory import HostMemory, memory_reader
from steptime.watch.host.machine_counters import (
    CpuTimes,
    NetworkBytes,
    clock_reader,
    network_reader,
    read_cpu_times,
)
from steptime.watch.host.processes import (
    DiskBytes,
    ProcessTimes,
    Used,
    cpu_by_process,
    disk_growth,
    process_reader,
    read_disk_bytes,
    read_shared_part,
    select_job,
)
from steptime.watch.host.resident import ResidentBytes
from steptime.watch.host.run_delay import RunDelay
from steptime.watch.host.unwatched import Unwatched, UnwatchedFinder
from steptime.watch.host.worker_processes import WorkerFinder, Workers

_INTERVAL_S = 1.0
_NUM_LINES = 20_000  # at an even pace; then rarer: a day has 49,000 samples, a month 117,000
_SAMPLE_FRACTION = 0.003  # of one core, for each sample
_SCAN_FRACTION = 0.002  # for the processes of the whole machine; the command's own are few
_BUSY_FRACTION = 0.1  # of a core: processes below it say nothing about the clock


def _not_counted(job: Collection[int], busy: Collection[int], dt_s: float) -> float | None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Readers:
    """Where the numbers come from; tests pass their own.

    Attributes:
        clock_s: monotonic time [s].
        unix_s: time of day [s].
        cost_s: CPU time of this process [s].
        cpu: CPU time spent by the whole machine.
        processes: these processes by id; with None every process of the machine.
        waited_s: CPU time of children that this process has waited for [s].
        memory: memory of the machine and of the command's control group.
        unwatched: of the command's processes, Pythons without a guest; each is returned once.
        workers: of the command's processes, DataLoader workers.
        disk: what a process moved to and from storage.
        shared_part: proportional set size of a process [bytes].
        network: traffic of the machine.
        clock_hz: mean clock of some cores.
        quota_cores: cores that the control group allows; None without a limit.
        quota_periods: periods of that limit, and those in which it stopped the group.
        delayed: part of the time for which a thread of these processes waited for a core; of the
            second ones, every thread counts.
    """

    clock_s: Callable[[], float]
    unix_s: Callable[[], float]
    cost_s: Callable[[], float]
    cpu: Callable[[], CpuTimes]
    processes: Callable[[Collection[int] | None], Mapping[int, ProcessTimes]]
    waited_s: Callable[[], float]
    memory: Callable[[], HostMemory]
    unwatched: Callable[[Mapping[int, int]], Iterable[Unwatched]]
    workers: Callable[[Collection[int]], Workers]
    disk: Callable[[int], DiskBytes | None]
    shared_part: Callable[[int], int | None]
    network: Callable[[], NetworkBytes | None]
    clock_hz: Callable[[Iterable[int]], float | None]
    quota_cores: Callable[[], float | None] = read_cpu_quota
    quota_periods: Callable[[], tuple[int, int] | None] = read_quota_periods
    delayed: Callable[[Collection[int], Collection[int], float], float | None] = _not_counted


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sample:
    clock_s: float
    cpu: CpuTimes
    job: Mapping[int, ProcessTimes]
    disk: Mapping[int, DiskBytes]
    memory: HostMemory
    network: NetworkBytes | None
    quota: tuple[int, int] | None


class HostSampler:
    """Appends a line to `host.jsonl` each time `take` is called, from the second time on.

    `job` has the ids of the command's processes as they were last seen.
    """

    def __init__(self, path: Path, *, root_pid: int, num_cores: int, readers: Readers) -> None:
        self._path = path
        self._root_pid = root_pid
        self._num_cores = num_cores
        self._readers = readers
        self._waited_before_s = readers.waited_s()
        self._began_s = readers.clock_s()
        self._first: HostMemory | None = None
        self._last: _Sample | None = None
        self._has_head = False
        self._scan_due_s = 0.0
        self._paced_s = 0.0  # cost of what has a pace of its own
        self._resident = ResidentBytes(
            readers.shared_part, clock_s=readers.clock_s, cost_s=readers.cost_s
        )
        self.job: frozenset[int] = frozenset()
        self.num_failures = 0

    def take(self) -> float:
        """Sample once; return the time until the next sample [s], longer where it is costly."""
        before_s = self._readers.cost_s()
        self._paced_s = 0.0
        self._try(lambda: self._sample(has_ended=False))
        spent_s = self._readers.cost_s() - before_s - self._paced_s
        age_s = self._readers.clock_s() - self._began_s
        return max(_INTERVAL_S, age_s / _NUM_LINES, spent_s / _SAMPLE_FRACTION)

    def take_last(self) -> None:
        """Sample a last time, when the command has ended and was waited for."""
        self._try(lambda: self._sample(has_ended=True))

    def _try(self, sample: Callable[[], None]) -> None:
        try:
            sample()
        except (OSError, psutil.Error, ValueError, LookupError):
            self.num_failures += 1

    def _sample(self, *, has_ended: bool) -> None:
        last, readers = self._last, self._readers
        clock_s, cpu = readers.clock_s(), readers.cpu()
        job = self._find_job(clock_s)
        disk = {pid: count for pid in job if (count := readers.disk(pid)) is not None}
        self._last = now = _Sample(
            clock_s=clock_s,
            cpu=cpu,
            job=job,
            disk=disk,
            memory=readers.memory(),
            network=readers.network(),
            quota=readers.quota_periods(),
        )
        self.job = frozenset(job)
        self._first = self._first or now.memory
        if not self._has_head:
            head: dict[str, object] = {"k": kinds.HEAD, "schema": SCHEMA}
            head["num_cores"] = self._num_cores
            if (quota := self._readers.quota_cores()) is not None:
                head["quota_cores"] = quota
            append_line(self._path, head)
            self._has_head = True
        for found in readers.unwatched({pid: times.layout for pid, times in job.items()}):
            append_line(self._path, {"k": kinds.GUESTLESS, "pid": found.pid, "name": found.name})
        if last is None:
            return
        if now.clock_s <= last.clock_s:
            raise ValueError(f"the clock must go on, got {last.clock_s=}, {now.clock_s=}")
        line = {"k": kinds.HOST_SAMPLE, **self._fields(last, now, has_ended=has_ended)}
        append_line(self._path, {name: v for name, v in line.items() if v is not None})

    def _find_job(self, clock_s: float) -> dict[int, ProcessTimes]:
        """Return the command's processes; new ones appear when the whole machine is scanned."""
        known = self._last.job if self._last is not None else {}
        if self._last is not None and clock_s < self._scan_due_s:
            processes = self._readers.processes({self._root_pid, *known})
        else:
            before_s = self._readers.cost_s()
            processes = self._readers.processes(None)
            spent_s = self._readers.cost_s() - before_s
            self._paced_s += spent_s
            self._scan_due_s = clock_s + spent_s / _SCAN_FRACTION
        return select_job(processes, self._root_pid, known)

    def _fields(self, last: _Sample, now: _Sample, *, has_ended: bool) -> dict[str, float | None]:
        """Return a line's numbers; at the end there is no process left to ask."""
        dt_s = now.clock_s - last.clock_s
        before, after = last.job, now.job
        if has_ended:
            before, after = self._with_us(before, after)
        used = cpu_by_process(before, after)
        fields: dict[str, float | None] = {
            "t_unix_s": round(self._readers.unix_s(), 3),
            "dt_s": round(dt_s, 4),
            "busy_cores": round(max(0.0, now.cpu.busy_s - last.cpu.busy_s) / dt_s, 3),
            "job_cores": round(sum(u.own_s + u.waited_s for u in used.values()) / dt_s, 3),
            "io_wait_cores": _rate(last.cpu.io_wait_s, now.cpu.io_wait_s, dt_s),
            "stopped_fraction": _stopped_fraction(last.quota, now.quota),
        }
        assert self._first is not None
        fields |= _memory_fields(self._first, last.memory, now.memory)
        fields |= _network_fields(last.network, now.network)
        return fields if has_ended else fields | self._of_processes(last, now, used, dt_s)

    def _of_processes(
        self, last: _Sample, now: _Sample, used: Mapping[int, Used], dt_s: float
    ) -> dict[str, float | None]:
        readers, job = self._readers, now.job
        before_s = readers.cost_s()
        self._resident.update(job)
        self._paced_s += readers.cost_s() - before_s
        disk = disk_growth(last.job, job, last.disk, now.disk)
        busy = {p for p, u in used.items() if u.own_s >= _BUSY_FRACTION * dt_s}
        cores = {c for pid in busy if (c := job[pid].processor) is not None}
        value = readers.delayed(job, busy, dt_s)
        fields: dict[str, float | None] = {
            "job_resident_bytes": self._resident.total(job, job),
            "disk_read_bytes": None if disk is None else disk.read,
            "disk_write_bytes": None if disk is None else disk.written,
            "clock_hz": readers.clock_hz(cores),
            "delayed_fraction": None if value is None else round(value, 4),
        }
        workers = readers.workers(job)
        if workers.parents:
            # A worker that ended handed its time to the process that waited for it.
            worker_s = sum(used[pid].own_s + used[pid].waited_s for pid in workers.pids)
            worker_s += sum(used[pid].waited_s for pid in workers.parents & job.keys())
            fields["worker_cores"] = round(worker_s / dt_s, 3)
            fields["worker_resident_bytes"] = self._resident.total(job, workers.pids) or 0
        return fields

    def _with_us(
        self, before: Mapping[int, ProcessTimes], after: Mapping[int, ProcessTimes]
    ) -> tuple[dict[int, ProcessTimes], dict[int, ProcessTimes]]:
        """Return both with this process, which got all the command's time when it ended."""
        if self._root_pid not in before:
            return dict(before), dict(after)
        us = before[self._root_pid].parent
        then = ProcessTimes(parent=0, started=0.0, own_s=0.0, waited_s=self._waited_before_s)
        now = replace(then, waited_s=self._readers.waited_s())
        return {us: then, **before}, {us: now, **after}


def append_line(path: Path, line: Mapping[str, object]) -> None:
    """Append a line to a file of the run.

    The file is opened each time: the user may delete the folder, and we hold no descriptor.

    Raises:
        OSError: it cannot be written.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.write(descriptor, (json.dumps(line) + "\n").encode())
    finally:
        os.close(descriptor)


def _memory_fields(first: HostMemory, last: HostMemory, now: HostMemory) -> dict[str, float | None]:
    """Return a line's memory: swap read since the last sample, kills since the first one."""
    return {
        "swap_in_bytes": _difference(now.swap_in_bytes, last.swap_in_bytes),
        "available_bytes": now.available_bytes,
        "cached_bytes": now.cached_bytes,
        "oom_kills": _difference(now.oom_kills, first.oom_kills),
    }


def _network_fields(last: NetworkBytes | None, now: NetworkBytes | None) -> dict[str, float | None]:
    if last is None or now is None:
        return {}
    return {
        "received_bytes": _difference(now.received, last.received),
        "sent_bytes": _difference(now.sent, last.sent),
        "loopback_bytes": _difference(now.loopback, last.loopback),
    }


def _stopped_fraction(last: tuple[int, int] | None, now: tuple[int, int] | None) -> float | None:
    """Return the share of the quota's periods in between in which it stopped the group."""
    if last is None or now is None or now[0] <= last[0]:
        return None
    return round(max(0.0, (now[1] - last[1]) / (now[0] - last[0])), 4)


def _difference(now: int | None, then: int | None) -> int | None:
    return None if now is None or then is None else max(0, now - then)


def _rate(then: float | None, now: float | None, dt_s: float) -> float | None:
    return None if now is None or then is None else round(max(0.0, now - then) / dt_s, 3)


def system_readers(run_folder: Path, root_pid: int) -> Readers:
    """Return the readers of this machine, for the command that began as process `root_pid`."""
    return Readers(
        clock_s=time.monotonic,
        unix_s=time.time,
        cost_s=time.process_time,
        cpu=read_cpu_times,
        processes=process_reader(),
        waited_s=_waited_s,
        memory=memory_reader(root_pid),
        unwatched=UnwatchedFinder(run_folder).find,
        workers=WorkerFinder(run_folder).find,
        disk=read_disk_bytes,
        shared_part=read_shared_part,
        network=network_reader(),
        clock_hz=clock_reader(),
        delayed=RunDelay().take,
    )


def _waited_s() -> float:
    times = os.times()
    return times.children_user + times.children_system
