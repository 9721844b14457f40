"""The processes of a run that train, and whether each of them still exists.

In: the record, in which each process says who it is, and /proc. Out: a `TrainingProcess` for each
process with torch, and every process that was started with the run's folder in its environment. A
process belongs to one boot of one machine: on another machine that shares the disk, only its own
last line shows that it has ended.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

import psutil

from steptime.launch.values import Survivor
from steptime.record import files, kinds
from steptime.record.lines import Line, LineReader, kind_of, read_lines
from steptime.record.live.process_identity import read_boot, read_host, read_namespace, read_started

_SLACK_S = 60.0  # the clock may have been set meanwhile; others' processes are excluded by the mark
_NAME_LENGTH = 60
_PROC = Path("/proc")

_HELPERS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver", "compile_worker")
"""Python's and torch's own helpers end by themselves, a moment after the process they served."""


class Sighting(Enum):
    """What can be seen of a process from here."""

    ALIVE = "alive"
    GONE = "gone"
    ELSEWHERE = "elsewhere"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingProcess:
    """A process that uses torch, as its own lines describe it.

    Attributes:
        pid: its id, where it runs.
        started: its start in ticks since the boot.
        boot: id of the boot of its machine.
        host: name of its machine.
        pid_space: the namespace in which it has its id.
        wrote_unix_s: when it wrote last, as far as is known.
        has_stepped: whether it made a step.
        has_ended: whether it wrote its last line.
        has_failed: whether an exception ended it.
    """

    pid: int
    started: int | None = None
    boot: str | None = None
    host: str | None = None
    pid_space: str | None = None
    wrote_unix_s: float = 0.0
    has_stepped: bool = False
    has_ended: bool = False
    has_failed: bool = False


def read_training_processes(folder: Path) -> tuple[TrainingProcess, ...]:
    """Return the processes with torch that wrote into the folder of a run.

    Raises:
        OSError: a file cannot be read.
    """
    told = [
        replace(process, has_ended=has_ended, has_failed=has_ended and "error" in line)
        for line in read_lines(folder / files.PROCESSES)
        if (has_ended := kind_of(line) == kinds.EXIT) or kind_of(line) == kinds.TORCH
        if (process := _take(line)) is not None
    ]
    for path in sorted(folder.glob(files.RANKS)):
        head = LineReader(path).read_head()
        if head is not None and (process := _take(head)) is not None:
            wrote_unix_s = path.stat().st_mtime
            told.append(replace(process, has_stepped=True, wrote_unix_s=wrote_unix_s))
    found: dict[tuple[str | None, int, int | None], TrainingProcess] = {}
    for process in told:
        key = (process.host, process.pid, process.started)
        found[key] = _combine(found.get(key, process), process)
    return tuple(found.values())


def _combine(one: TrainingProcess, other: TrainingProcess) -> TrainingProcess:
    """Return what two lines of the same process say together."""
    return replace(
        one,
        wrote_unix_s=max(one.wrote_unix_s, other.wrote_unix_s),
        has_stepped=one.has_stepped or other.has_stepped,
        has_ended=one.has_ended or other.has_ended,
        has_failed=one.has_failed or other.has_failed,
    )


def _take(line: Line) -> TrainingProcess | None:
    pid, wrote_unix_s = line.get("pid"), line.get("t", line.get("t_unix_s"))
    if type(pid) is not int:
        return None
    return TrainingProcess(
        pid=pid,
        started=_whole(line.get("started")),
        boot=_text(line.get("boot")),
        host=_text(line.get("host")),
        pid_space=_text(line.get("pid_space")),
        wrote_unix_s=float(wrote_unix_s) if isinstance(wrote_unix_s, (int, float)) else 0.0,
    )


def _whole(value: object) -> int | None:
    return value if type(value) is int else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


# -- on this machine


def sight(process: TrainingProcess) -> Sighting:
    """Return what can be seen of a process now.

    An id that another process has got since then has another start.
    """
    if process.has_ended:
        return Sighting.GONE
    if process.started is None:
        return _sight_by_time(process)
    if process.boot != read_boot():
        # After a restart of its machine, no process is left.
        return Sighting.GONE if process.host == read_host() else Sighting.ELSEWHERE
    if process.pid_space == read_namespace():
        is_alive = read_started(process.pid) == process.started
        return Sighting.ALIVE if is_alive else Sighting.GONE
    # Inside a container it has another id than here, and from inside another one it is not seen.
    return Sighting.ALIVE if _is_seen_as_another(process) else Sighting.ELSEWHERE


def _sight_by_time(process: TrainingProcess) -> Sighting:
    """Judge by the time of its start where there is no /proc, or the record does not say more."""
    if process.host is not None and process.host != read_host():
        return Sighting.ELSEWHERE
    try:
        one = psutil.Process(process.pid)
        is_dead = one.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
        is_older = one.create_time() <= process.wrote_unix_s + 1.0
    except (psutil.Error, OSError, ValueError, OverflowError):
        return Sighting.GONE
    return Sighting.ALIVE if is_older and not is_dead else Sighting.GONE


def _is_seen_as_another(process: TrainingProcess) -> bool:
    for pid in _pids():
        if read_started(pid) == process.started:
            with suppress(OSError):
                status = (_PROC / str(pid) / "status").read_bytes().splitlines()
                ids = next((line.split() for line in status if line.startswith(b"NSpid:")), [])
                if ids[1:] and int(ids[-1]) == process.pid:
                    return True
    return False


def is_there(one: Survivor, *, boot: str | None) -> bool:
    """Return whether a process that was seen in a boot of this machine still exists."""
    if one.started is None:
        return psutil.pid_exists(one.pid)
    return boot == read_boot() and read_started(one.pid) == one.started


def name_again(one: Survivor) -> Survivor:
    """Return a process that exists with its name now: a fork may have become something else."""
    return replace(one, name=_read_name(one.pid) or one.name)


def find_marked(folder: Path, *, since_unix_s: float) -> tuple[Survivor, ...]:
    """Return the processes that were started with this run's folder in their environment.

    Args:
        folder: of the run; absolute.
        since_unix_s: when the run was started; no process of it is older.
    """
    mark = b"STEPTIME_RUN=" + os.fsencode(folder)
    if not (_PROC / "self" / "stat").exists():
        return _find_by_psutil(os.fsdecode(mark), since_unix_s - _SLACK_S)
    workers = _read_worker_pids(folder)
    found = []
    for pid in _pids():
        started = read_started(pid)
        if started is None or age_s(started) > time.time() - since_unix_s + _SLACK_S:
            continue
        with suppress(OSError):  # somebody else's, or gone by now
            words = (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
            if mark in words and pid not in workers and not _is_helper(pid):
                found.append(Survivor(pid=pid, name=_read_name(pid), started=started))
    return tuple(found)


def _read_worker_pids(folder: Path) -> set[object]:
    """Return the DataLoader workers of the run, which outlive a training that leaves abruptly."""
    found: set[object] = set()
    for path in folder.glob(files.WORKERS):
        with suppress(OSError):
            lines = read_lines(path, without=(kinds.WORKER,))
            found |= {line.get("pid") for line in lines if kind_of(line) == kinds.HEAD}
    return found


def _is_helper(pid: int) -> bool:
    try:
        words = (_PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return False
    return any(name.encode() in words for name in _HELPERS)


def age_s(started: int) -> float:
    """Return how long ago a process started [s]."""
    now_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    return now_s - started / os.sysconf("SC_CLK_TCK")


def _pids() -> Iterator[int]:
    return map(int, filter(str.isdigit, os.listdir(_PROC)))


def _read_name(pid: int) -> str:
    """Return the words of a process, as `ps` shows them."""
    try:
        words = (_PROC / str(pid) / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    except OSError:
        words = []
    return _name_of([os.fsdecode(word) for word in words])


def _name_of(words: list[str]) -> str:
    text = " ".join([os.path.basename(words[0]), *words[1:]]) if words and words[0] else ""
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= _NAME_LENGTH else f"{text[: _NAME_LENGTH - 3]}..."


def _find_by_psutil(mark: str, since_unix_s: float) -> tuple[Survivor, ...]:
    name, _, value = mark.partition("=")
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.create_time() >= since_unix_s and process.environ().get(name) == value:
                found.append(Survivor(pid=process.pid, name=_name_of(process.cmdline())))
    return tuple(found)
