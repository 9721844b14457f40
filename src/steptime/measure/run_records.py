"""Reads what the guest and the launcher wrote into a run folder, as frozen values.

In: a folder as docs/reference/run-folder.md describes it. Out: `RunRecords`. It skips and counts
lines that were cut short, and refuses a file of another schema. `measure.steps.step_fold` combines
the lines.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from steptime.core.codec import from_json
from steptime.errors import DamagedRunError, NotFoundError, StoreError
from steptime.launch.values import CommandRecord
from steptime.measure.host_lines import GuestlessPython, HostSample, read_host
from steptime.measure.jsonl import take_all, take_head
from steptime.measure.source.scan import Source, read_source
from steptime.record import files, kinds
from steptime.record.lines import Line, Torn, kind_of, read_lines

if TYPE_CHECKING:
    from steptime.measure.memory.memory_anatomy import MemorySeen
    from steptime.measure.rank_signals import CountSeen
    from steptime.measure.stream import RankStream
    from steptime.measure.values.stall import Stall

_OTHERS = "Without it nothing can be shown of this run. Show another: steptime runs lists them."


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStart:
    """A Python process began; `k` is `old` where its Python is too old for the guest."""

    k: str
    pid: int
    python: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchLoaded:
    """Torch was imported; the hooks are in place unless that `failed` or torch is `too_old`."""

    pid: int
    version: str | None = None
    failed: str | None = None
    too_old: bool = False
    failures: Mapping[str, int] | None = None
    failure_texts: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorSeen:
    """The exception that ended a process; fields that are not known are None."""

    type: str
    text: str
    file: str | None = None
    line: int | None = None
    phase: str | None = None
    is_memory: bool | None = None
    requested_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessExit:
    """A process with torch ended in order, by an `error` or without one."""

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
    """The identity of a DataLoader worker."""

    pid: int
    ppid: int
    worker: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSums:
    """What a worker did so far; its last line counts."""

    pid: int
    batches: int
    fetch_ns: int
    collate_ns: int
    cpu_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecords:
    """Everything that a run folder holds; `num_torn_lines` could not be read.

    `measure.series.host_points` reads the devices themselves; here is only why there are none.
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
        DamagedRunError: `command.json` is missing or damaged, or a file has another schema.
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
    processes = list(read_lines(folder / files.PROCESSES, torn))
    host = read_host(folder / files.HOST, torn)
    streams = _read_streams(sorted(folder.glob(files.RANKS)), torn)
    worker_files = sorted(folder.glob(files.WORKERS))
    stalls = _read_stalls(folder, torn)
    return RunRecords(
        command=_read_command(folder / "command.json"),
        streams=streams,
        starts=take_all(ProcessStart, processes, (kinds.START, kinds.OLD_PYTHON), torn),
        torches=take_all(TorchLoaded, processes, (kinds.TORCH,), torn),
        memory=_take_memory(processes, torn),
        exits=take_all(ProcessExit, processes, (kinds.EXIT,), torn),
        workers=tuple(found for path in worker_files for found in _read_workers(path, torn)),
        num_cores=host.num_cores,
        host=host.samples,
        source=read_source(folder),
        num_torn_lines=torn.count,
        guestless=host.guestless,
        devices_missing=host.devices_missing,
        stalls=stalls,
        counted=_read_counted(folder / files.COUNTED, torn),
    )


# The imports below load much that a run without steps does not need.


def _read_streams(paths: Sequence[Path], torn: Torn) -> tuple[RankStream, ...]:
    if not paths:
        return ()
    from steptime.measure.stream import read_stream

    streams = [read_stream(path, torn) for path in paths]
    return tuple(stream for stream in streams if stream is not None)


def _read_stalls(folder: Path, torn: Torn) -> tuple[Stall, ...]:
    if not (folder / files.STALLS).exists():
        return ()
    from steptime.watch.stall_file import read_stalls

    return read_stalls(folder, torn)


def _take_memory(processes: Sequence[Line], torn: Torn) -> tuple[MemorySeen, ...]:
    if not any(kind_of(line) == kinds.MEMORY_HELD for line in processes):
        return ()
    from steptime.measure.memory.memory_anatomy import MemorySeen

    return take_all(MemorySeen, processes, (kinds.MEMORY_HELD,), torn)


def _read_counted(path: Path, torn: Torn) -> CountSeen | None:
    """Return what an extra child counted, or why it counted nothing."""
    if not path.exists():
        return None
    from steptime.measure.rank_signals import read_count

    found = None
    for line in read_lines(path, torn):
        try:
            found = read_count(line) if kind_of(line) == kinds.COUNT else found
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
    """Return the workers that wrote to this file, one after the other."""
    lines = read_lines(path, torn)
    first = take_head(WorkerHead, lines, path, torn)
    if first is None:
        return []
    rest = list(lines)
    later = take_all(WorkerHead, rest, (kinds.HEAD,), torn)
    sums = {found.pid: found for found in take_all(WorkerSums, rest, (kinds.WORKER,), torn)}
    heads = {head.pid: head for head in (first, *later)}
    return [(head, sums[pid]) for pid, head in heads.items() if pid in sums]
