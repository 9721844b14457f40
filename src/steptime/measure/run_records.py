"""What the guest and the launcher wrote into a run folder, as frozen values.

In: a folder as docs/reference/run-folder.md describes it. Out: `RunRecords`. A line that was cut
short is skipped and counted; a file of another schema is refused. What the lines mean together is
left to `measure.steps.step_fold`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from steptime.core.codec import from_json
from steptime.errors import DamagedRunError, NotFoundError, StoreError
from steptime.launch.values import CommandRecord
from steptime.measure.jsonl import Torn, read_rows, take_all, take_head
from steptime.measure.memory.memory_anatomy import MemorySeen
from steptime.measure.rank_signals import CountSeen, read_count
from steptime.measure.source.scan import Source, read_source
from steptime.measure.stream import RankStream, read_stream
from steptime.measure.values.stall import Stall
from steptime.watch.stall_file import read_stalls

_OTHERS = "Without it nothing can be shown of this run. Show another: steptime runs lists them."


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStart:
    """A Python process began; `k` is `old` where it is too old for the guest."""

    k: str
    pid: int
    python: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchLoaded:
    """Torch was executed; the hooks are in place unless it `failed` or is `too_old`."""

    pid: int
    version: str | None = None
    failed: str | None = None
    too_old: bool = False
    failures: Mapping[str, int] | None = None
    failure_texts: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorSeen:
    """The exception that ended a process; what of it is not known is None."""

    type: str
    text: str
    file: str | None = None
    line: int | None = None
    phase: str | None = None
    is_memory: bool | None = None
    requested_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessExit:
    """A process that had torch reached its end in order, by an `error` or without one."""

    pid: int
    updates: int
    backwards: int
    forwards: int
    batches: int
    failures: Mapping[str, int]
    failure_texts: Mapping[str, str] | None = None
    error: ErrorSeen | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerHead:
    """Who a DataLoader worker is."""

    pid: int
    ppid: int
    worker: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSums:
    """What it did so far; the last line of a worker counts."""

    pid: int
    batches: int
    fetch_ns: int
    collate_ns: int
    cpu_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSample:
    """Load of the machine over the `dt_s` before `t_unix_s`, in cores, and its memory.

    `oom_kills` counts from the run's start, `swap_in_bytes` over the `dt_s` alone.
    """

    t_unix_s: float
    dt_s: float
    busy_cores: float
    job_cores: float
    swap_in_bytes: int | None = None
    available_bytes: int | None = None
    oom_kills: int | None = None
    worker_resident_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestlessPython:
    """A Python process of the command in which no guest was seen."""

    pid: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicesMissing:
    """Why nothing was written of devices although there is a driver, a machine word."""

    missing: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecords:
    """Everything a run folder holds; `num_torn_lines` could not be read.

    The devices themselves are left to `measure.series.host_points`; here is only why there are
    none.
    """

    command: CommandRecord
    streams: tuple[RankStream, ...]
    starts: tuple[ProcessStart, ...]
    torches: tuple[TorchLoaded, ...]
    memory: tuple[MemorySeen, ...]
    exits: tuple[ProcessExit, ...]
    workers: tuple[tuple[WorkerHead, WorkerSums], ...]
    num_cores: int | None
    host: tuple[HostSample, ...]
    source: Source
    num_torn_lines: int
    guestless: tuple[GuestlessPython, ...] = ()
    devices_missing: str | None = None
    stalls: tuple[Stall, ...] = ()
    counted: CountSeen | None = None


def read_records(folder: Path) -> RunRecords:
    """Read a run folder.

    Raises:
        NotFoundError: there is no such folder.
        DamagedRunError: `command.json` is missing or damaged, or a file is of another schema.
        StoreError: a file cannot be read.
    """
    if not folder.is_dir():
        raise NotFoundError(f"no run folder at {folder}", hint="list the runs: steptime runs")
    try:
        return _read_folder(folder)
    except OSError as error:
        place = error.filename or folder
        raise StoreError(
            f"cannot read the run in {folder}: {place}: {error.strerror or error}.",
            hint="Make that file readable, or move it away: the others are shown without it.",
        ) from error


def _read_folder(folder: Path) -> RunRecords:
    torn = Torn()
    processes = list(read_rows(folder / "processes.jsonl", torn))
    host = _read_host(folder / "host.jsonl", torn)
    streams = [read_stream(path, torn) for path in sorted(folder.glob("rank-*.jsonl"))]
    worker_files = sorted(folder.glob("worker-*.jsonl"))
    stalls = read_stalls(folder, torn)
    return RunRecords(
        command=_read_command(folder / "command.json"),
        streams=tuple(stream for stream in streams if stream is not None),
        starts=take_all(ProcessStart, processes, ("start", "old"), torn),
        torches=take_all(TorchLoaded, processes, ("torch",), torn),
        memory=take_all(MemorySeen, processes, ("mem",), torn),
        exits=take_all(ProcessExit, processes, ("exit",), torn),
        workers=tuple(found for path in worker_files for found in _read_workers(path, torn)),
        num_cores=host.num_cores,
        host=host.samples,
        source=read_source(folder),
        num_torn_lines=torn.count,
        guestless=host.guestless,
        devices_missing=host.devices_missing,
        stalls=stalls,
        counted=_read_counted(folder / "count.jsonl", torn),
    )


def _read_counted(path: Path, torn: Torn) -> CountSeen | None:
    """What an extra child counted, or why it did not."""
    found = None
    for row in read_rows(path, torn):
        try:
            found = read_count(row) if row["k"] == "count" else found
        except (DamagedRunError, ValueError):
            torn.count += 1
    return found


def _read_command(path: Path) -> CommandRecord:
    try:
        data = json.loads(path.read_bytes())
    except (FileNotFoundError, IsADirectoryError):
        raise DamagedRunError(
            f"{path.parent} is no run folder: no file {path.name} is in it.", hint=_OTHERS
        ) from None
    except (ValueError, RecursionError) as error:
        raise DamagedRunError(f"{path} is not JSON: {error}.", hint=_OTHERS) from error
    return from_json(CommandRecord, data, where=str(path))


def _read_workers(path: Path, torn: Torn) -> list[tuple[WorkerHead, WorkerSums]]:
    """The workers that wrote to this file, one after the other."""
    rows = read_rows(path, torn)
    first = take_head(WorkerHead, rows, path, torn)
    if first is None:
        return []
    rest = list(rows)
    later = take_all(WorkerHead, rest, ("head",), torn)
    sums = {found.pid: found for found in take_all(WorkerSums, rest, ("w",), torn)}
    heads = {head.pid: head for head in (first, *later)}
    return [(head, sums[pid]) for pid, head in heads.items() if pid in sums]


@dataclass(frozen=True, slots=True, kw_only=True)
class _HostHead:
    num_cores: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Host:
    num_cores: int | None = None
    samples: tuple[HostSample, ...] = ()
    guestless: tuple[GuestlessPython, ...] = ()
    devices_missing: str | None = None


def _read_host(path: Path, torn: Torn) -> _Host:
    rows = read_rows(path, torn)
    head = take_head(_HostHead, rows, path, torn)
    if head is None:
        return _Host()
    rest = list(rows)
    missing = take_all(DevicesMissing, rest, ("dm",), torn)
    return _Host(
        num_cores=head.num_cores,
        samples=take_all(HostSample, rest, ("h",), torn),
        guestless=take_all(GuestlessPython, rest, ("g",), torn),
        devices_missing=missing[0].missing if missing else None,
    )
