"""The processes of a command: which they are, and what they used between two samples.

In: what the machine says about each process. Out: `ProcessTimes`, and sums over the command. When a
process ends, the parent that waits for it inherits everything it used; what was already counted for
it is subtracted there. `watch.host_sampler` decides when to sample.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import psutil


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessTimes:
    """CPU time of one process so far [s]: its own, and that of children it has waited for.

    `started` distinguishes it from a later process with the same id. `layout` is where its stack
    begins, which is the same in a fork and its parent; 0 where the machine does not say.
    `processor` is the core that its first thread last ran on.
    """

    parent: int
    started: float
    own_s: float
    waited_s: float
    layout: int = 0
    resident_bytes: int | None = None
    processor: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskBytes:
    """Read from and written to storage so far, by a process and the children it waited for."""

    read: int
    written: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """CPU time of one process between two samples [s]: its own, and of children that ended."""

    own_s: float
    waited_s: float


Jobs = Mapping[int, ProcessTimes]


def select_job(processes: Jobs, root_pid: int, known: Jobs) -> dict[int, ProcessTimes]:
    """Return the command's processes: those below its first one, and known orphans.

    This process is none of them, even where the first one started it: a notebook's kernel.
    """
    job = {pid for pid, then in known.items() if is_same(processes.get(pid), then)}
    job |= {root_pid} & processes.keys()
    us = os.getpid()
    children: dict[int, list[int]] = {}
    for pid, process in processes.items():
        children.setdefault(process.parent, []).append(pid)
    pending = list(job)
    while pending:
        below = children.get(pending.pop(), [])
        new = [pid for pid in below if pid not in job and pid != us]
        job.update(new)
        pending.extend(new)
    return {pid: processes[pid] for pid in job}


def is_same(now: ProcessTimes | None, then: ProcessTimes) -> bool:
    """Return whether an id still belongs to the same process."""
    return now is not None and now.started == then.started


def cpu_by_process(before: Jobs, after: Jobs) -> dict[int, Used]:
    """Return the same for each process that still exists."""
    ended = _ended(before, after)
    known_s: defaultdict[int, float] = defaultdict(float)
    for pid in ended:
        known_s[_heir(pid, before, ended)] += before[pid].own_s + before[pid].waited_s
    used = {}
    for pid, now in after.items():
        then = None if pid in ended else before.get(pid)
        own_s, waited_s = (then.own_s, then.waited_s) if then else (0.0, 0.0)
        used[pid] = Used(
            own_s=max(0.0, now.own_s - own_s),
            waited_s=max(0.0, now.waited_s - waited_s - known_s[pid]),
        )
    return used


def disk_growth(
    before: Jobs, after: Jobs, known: Mapping[int, DiskBytes], now: Mapping[int, DiskBytes]
) -> DiskBytes | None:
    """Return the bytes between two samples of all readable processes; None without any.

    Args:
        before: the command's processes at the sample before.
        after: those of this sample.
        known: bytes at the sample before; a process that could not be read is missing.
        now: bytes at this sample.
    """
    if not now:
        return None
    ended = _ended(before, after)
    read, written = dict.fromkeys(now, 0), dict.fromkeys(now, 0)
    for pid in ended & known.keys():
        heir = _heir(pid, before, ended)
        if heir in now:
            read[heir] += known[pid].read
            written[heir] += known[pid].written
    for pid in known.keys() - ended:
        if pid in now:
            read[pid] += known[pid].read
            written[pid] += known[pid].written
    return DiskBytes(
        read=sum(max(0, count.read - read[pid]) for pid, count in now.items()),
        written=sum(max(0, count.written - written[pid]) for pid, count in now.items()),
    )


def _ended(before: Jobs, after: Jobs) -> set[int]:
    return {pid for pid, then in before.items() if not is_same(after.get(pid), then)}


def _heir(pid: int, before: Jobs, ended: set[int]) -> int:
    """Return the nearest ancestor that still exists."""
    while pid in ended:
        pid = before[pid].parent
    return pid


# -- this machine


def process_reader() -> Callable[[Collection[int] | None], dict[int, ProcessTimes]]:
    """Return what reads these processes or, with None, all processes of the machine."""
    return read_proc if os.path.isfile("/proc/self/stat") else read_psutil


def read_proc(pids: Collection[int] | None = None) -> dict[int, ProcessTimes]:
    """Read each process once: five times cheaper than psutil, and some nodes have 2,000 of them."""
    tick_s, page_bytes = 1.0 / os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    names = filter(str.isdigit, os.listdir("/proc")) if pids is None else map(str, pids)
    found = {}
    for name in names:
        if (stat := read_file(f"/proc/{name}/stat")) is not None:
            # Behind the name in brackets, which may hold anything; fields as in proc(5).
            field = stat[stat.rindex(b")") + 2 :].split(None, 37)
            found[int(name)] = ProcessTimes(
                parent=int(field[1]),
                started=float(field[19]),
                own_s=(int(field[11]) + int(field[12])) * tick_s,
                waited_s=(int(field[13]) + int(field[14])) * tick_s,
                layout=int(field[25]),
                resident_bytes=int(field[21]) * page_bytes,
                processor=int(field[36]),
            )
    return found


def cpu_by_inner_id(pids: Collection[int]) -> dict[int, float]:
    """Return the CPU time of each process [s], by the id that it has in its own namespace."""
    found = {}
    for pid, times in read_proc(pids).items():
        _, _, ids = (read_file(f"/proc/{pid}/status") or b"").partition(b"\nNSpid:")
        if words := ids.partition(b"\n")[0].split():
            found[int(words[-1])] = times.own_s
    return found


def read_file(path: str, size: int = 4096) -> bytes | None:
    """Return the beginning of a kernel file in one read; None if it is gone or not ours."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(descriptor, size)
        finally:
            os.close(descriptor)
    except OSError:
        return None  # ended meanwhile


def read_disk_bytes(pid: int) -> DiskBytes | None:
    """Return what a process moved to and from storage; None where the kernel does not say."""
    words = (read_file(f"/proc/{pid}/io") or b"").split()
    counts = dict(zip(words[::2], words[1::2], strict=False))
    if b"read_bytes:" not in counts or b"write_bytes:" not in counts:
        return None
    return DiskBytes(read=int(counts[b"read_bytes:"]), written=int(counts[b"write_bytes:"]))


def read_shared_part(pid: int) -> int | None:
    """Return the proportional set size [bytes]: shared pages are split among their processes."""
    for line in (read_file(f"/proc/{pid}/smaps_rollup") or b"").splitlines():
        if line.startswith(b"Pss:"):
            return int(line.split()[1]) * 1024
    return None


def read_psutil(pids: Collection[int] | None = None) -> dict[int, ProcessTimes]:
    """Read the processes where there is no /proc."""
    found = {}
    for process in psutil.process_iter(["ppid", "create_time", "cpu_times", "memory_info"]):
        times, memory = process.info["cpu_times"], process.info["memory_info"]
        if times is not None and (pids is None or process.pid in pids):
            found[process.pid] = ProcessTimes(
                parent=process.info["ppid"],
                started=process.info["create_time"],
                own_s=times.user + times.system,
                waited_s=getattr(times, "children_user", 0.0)
                + getattr(times, "children_system", 0.0),
                resident_bytes=None if memory is None else memory.rss,
            )
    return found
