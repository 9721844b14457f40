"""Reads what the guest and the launcher wrote into a run folder, as frozen values.

In: a folder as docs/internals/run-folder.md describes it. Out: `RunRecords`. It skips and counts
lines that were cut short, and refuses a file of another schema. `measure.steps.step_fold` combines
the lines.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from steptime.core.codec import decode
from steptime.errors import DamagedRunError, NotFoundError, StoreError
from steptime.launch.values import CommandRecord
from steptime.measure.fold.host_lines import HostLines, read_host
from steptime.measure.fold.jsonl import read_all, take_all, take_head
from steptime.measure.said.read_output import read_output
from steptime.measure.source.scan import Source, read_source
from steptime.record import files, kinds
from steptime.record.lines import Line, Torn, kind_of, read_lines
from steptime.record.regular_file import read_regular

if TYPE_CHECKING:
    from steptime.measure.fold.seen_lines import CountSeen
    from steptime.measure.fold.stream import RankStream
    from steptime.measure.memory.memory_anatomy import MemoryTold
    from steptime.measure.sense.sense_record import WorkerSeen
    from steptime.measure.values.said import LibraryMessage
    from steptime.measure.values.stall import Stall
    from steptime.measure.values.training_values import CommandTraining
    from steptime.measure.wall.stall_file import EndedDesync
    from steptime.measure.wall.trainings import FoundTraining

_AFTER_S = 5.0
"""A sample of the machine this long after a training's last update still tells how it ended."""

_OTHERS = "Without it nothing can be shown of this run. Show another: steptime list lists them."


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStart:
    """A Python process began; `k` is `old` where its Python is too old for the guest."""

    k: str
    pid: int
    python: str
    argv: tuple[str, ...] = ()
    t: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchLoaded:
    """Torch was imported; the hooks are in place unless that `failed` or torch is `too_old`."""

    pid: int
    t: float | None = None
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
    t: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerHead:
    """The identity of a DataLoader worker."""

    pid: int
    ppid: int
    worker: int
    t_unix_s: float | None = None
    shared_dirty: int | None = None
    private_dirty: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSums:
    """What a worker did so far; its last line counts.

    `shared_dirty` and `private_dirty` are of the last line that tells them; `first_fetch_ns` is of
    the first one.
    """

    pid: int
    batches: int
    fetch_ns: int
    collate_ns: int
    cpu_ns: int | None = None
    shared_dirty: int | None = None
    private_dirty: int | None = None
    opens_images: bool = False
    num_threads: int | None = None
    first_fetch_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecords:
    """What a run folder holds of one training; `num_torn_lines` could not be read.

    `measure.series.host_points` reads the devices themselves; `host` has only why there are none,
    and the energy that they drew while the command ran.
    `training` is None where no process stepped. `unshown_ranks` are ranks of other starts of the
    same training. `has_other_workers` says that a training beside this one has loader workers,
    whose memory nobody can separate. `said` is what torch wrote into output that was kept.
    """

    command: CommandRecord
    streams: tuple[RankStream, ...]
    starts: tuple[ProcessStart, ...]
    torches: tuple[TorchLoaded, ...]
    memory: tuple[MemoryTold, ...]
    exits: tuple[ProcessExit, ...]
    workers: tuple[tuple[WorkerHead, WorkerSums], ...]
    host: HostLines
    source: Source
    num_torn_lines: int
    stalls: tuple[Stall, ...] = ()
    ended_desync: EndedDesync | None = None
    counted: tuple[CountSeen, ...] = ()
    counted_training: int = 1
    training: CommandTraining | None = None
    unshown_ranks: tuple[int, ...] = ()
    has_other_workers: bool = False
    worker_facts: tuple[WorkerSeen, ...] = ()
    said: tuple[LibraryMessage, ...] = ()


def read_records(folder: Path, number: int | None = None) -> RunRecords:
    """Read a run folder.

    Args:
        folder: as docs/internals/run-folder.md describes it.
        number: which training is read; None for the one that lasted longest.

    Raises:
        NotFoundError: there is no such folder, or no such training in it.
        DamagedRunError: `command.json` is missing or damaged, or a file has another schema.
        StoreError: a file cannot be read.
    """
    return RecordReader(folder).read(number)


class RecordReader:
    """Reads what all trainings of a run share, once, and then the files of one at a time.

    Raises:
        NotFoundError: there is no such folder.
        DamagedRunError: `command.json` is missing or damaged, or a file has another schema.
        StoreError: a file cannot be read.
    """

    def __init__(self, folder: Path) -> None:
        if not os.path.isdir(folder):
            raise NotFoundError(f"no run folder at {folder}", hint="list the runs: steptime list")
        self._folder = folder
        self._torn = Torn()
        with _told(folder):
            self._shared = _read_shared(folder, self._torn)
            paths = sorted(folder.glob(files.RANKS))
            self._found, self._others = _find_trainings(paths, self._shared.starts)

    @property
    def trainings(self) -> tuple[CommandTraining, ...]:
        """Return all trainings of the run, in the order of start."""
        return tuple(found.training for found in self._found)

    @property
    def longest(self) -> CommandTraining | None:
        """Return the training that lasted longest."""
        return max(self.trainings, key=lambda one: one.lasted_s, default=None)

    def read(self, number: int | None = None) -> RunRecords:
        """Return the records of one training; the longest is read if no number is given.

        Raises:
            NotFoundError: there is no training with this number.
            DamagedRunError, StoreError: as for the class.
        """
        if number is None and self.longest is not None:
            number = self.longest.number
        found = None if number is None else self._numbered(number)
        torn = Torn()
        with _told(self._folder):
            if found is None:
                records = replace(self._shared, streams=_read_streams(self._others, torn))
            else:
                others = self._others if len(self._found) == 1 else ()
                streams = _read_streams(sorted((*found.paths, *others)), torn)
                records = _take_training(self._shared, streams, self._found, found)
        return replace(records, num_torn_lines=self._torn.count + torn.count)

    def _numbered(self, number: int) -> FoundTraining:
        for found in self._found:
            if found.training.number == number:
                return found
        raise no_such_training(self._folder.name, number, len(self._found))


def _read_shared(folder: Path, torn: Torn) -> RunRecords:
    """Return everything but the files of the ranks."""
    processes = list(read_lines(folder / files.PROCESSES, torn))
    worker_files = sorted(folder.glob(files.WORKERS))
    return RunRecords(
        command=_read_command(folder / "command.json"),
        streams=(),
        starts=take_all(ProcessStart, processes, (kinds.START, kinds.OLD_PYTHON), torn),
        torches=take_all(TorchLoaded, processes, (kinds.TORCH,), torn),
        memory=_take_memory(processes, torn),
        exits=take_all(ProcessExit, processes, (kinds.EXIT,), torn),
        workers=tuple(found for path in worker_files for found in _read_workers(path, torn)),
        worker_facts=_read_worker_facts(worker_files, torn),
        host=read_host(folder / files.HOST, torn),
        source=read_source(folder),
        num_torn_lines=0,
        stalls=_read_stalls(folder, torn),
        ended_desync=_read_ended_desync(folder),
        counted=_read_counted(folder / files.COUNTED, torn),
        counted_training=_read_counted_training(folder / files.COUNTED),
        said=read_output(folder / files.OUTPUT),
    )


def _take_training(
    shared: RunRecords,
    streams: tuple[RankStream, ...],
    all_found: Sequence[FoundTraining],
    found: FoundTraining,
) -> RunRecords:
    """Return what belongs to one training; what belongs to none stays with each."""
    training, rank_of = found.training, found.rank_of
    streams = tuple(
        replace(one, head=replace(one.head, rank=rank_of.get(one.head.pid, one.head.rank)))
        for one in streams
    )
    known = replace(shared, streams=streams, training=training, unshown_ranks=found.unshown)
    if len(all_found) == 1:
        return replace(known, stalls=_stalls_of(found, shared.stalls))
    others = [one for one in all_found if one is not found]
    theirs = frozenset[int]().union(*(one.pids | one.parents for one in others))
    theirs -= found.pids | found.parents
    beside = [one for one in others if one.training.number in training.beside]
    workers_of = {head.ppid for head, _ in shared.workers}
    ended = shared.ended_desync
    since, until = training.started_unix_s, training.last_update_unix_s + _AFTER_S
    samples = tuple(one for one in shared.host.samples if since <= one.t_unix_s - one.dt_s <= until)
    return replace(
        known,
        torches=tuple(one for one in shared.torches if one.pid not in theirs),
        memory=tuple(one for one in shared.memory if one.pid not in theirs),
        exits=tuple(one for one in shared.exits if one.pid not in theirs),
        workers=tuple(one for one in shared.workers if one[0].ppid not in theirs),
        host=replace(shared.host, samples=samples),
        stalls=_stalls_of(found, shared.stalls),
        ended_desync=ended if ended is not None and found.pids & set(ended.pids) else None,
        counted=shared.counted if training.number == shared.counted_training else (),
        has_other_workers=any(one.pids & workers_of for one in beside),
    )


def _stalls_of(found: FoundTraining, stalls: Sequence[Stall]) -> tuple[Stall, ...]:
    """Return the stalls of a training, with its ranks alone."""
    kept = []
    for stall in stalls:
        ranks = [one for one in stall.ranks if one.pid in found.pids]
        if ranks:
            ranks = [replace(one, rank=found.rank_of.get(one.pid, one.rank)) for one in ranks]
            kept.append(replace(stall, ranks=tuple(ranks)))
    return tuple(kept)


def no_such_training(run_id: str, number: int, num: int) -> NotFoundError:
    """Return the error about a number that none of the `num` trainings of a run has."""
    if not num:
        return NotFoundError(
            f"run {run_id} has no training {number}: no step was seen in it.",
            hint=f"See what was seen: steptime show {run_id}",
        )
    known = "one training" if num == 1 else f"{num} trainings"
    return NotFoundError(
        f"run {run_id} has {known}, and none has the number {number}.",
        hint=f"Name one from 1 to {num}." if num > 1 else "Leave --training out.",
    )


@contextmanager
def _told(folder: Path) -> Iterator[None]:
    """Say which file of the run cannot be read."""
    try:
        yield
    except OSError as error:
        place = error.filename or folder
        raise StoreError(
            f"cannot read the run in {folder}: {place}: {error.strerror or error}.",
            hint="Make that file readable, or move it away: the others are shown without it.",
        ) from error


# The imports below load much that a run without steps does not need.


def _find_trainings(
    paths: Sequence[Path], starts: Sequence[ProcessStart]
) -> tuple[tuple[FoundTraining, ...], tuple[Path, ...]]:
    if not paths:
        return (), ()
    from steptime.measure.wall.trainings import ProcessBegin, find_trainings

    begins = [ProcessBegin(pid=s.pid, t=s.t, argv=s.argv) for s in starts if s.t is not None]
    return find_trainings(paths, begins)


def _read_streams(paths: Sequence[Path], torn: Torn) -> tuple[RankStream, ...]:
    if not paths:
        return ()
    from steptime.measure.fold.stream import read_stream

    streams = [read_stream(path, torn) for path in paths]
    return tuple(stream for stream in streams if stream is not None)


def _read_stalls(folder: Path, torn: Torn) -> tuple[Stall, ...]:
    if not os.path.lexists(folder / files.STALLS):
        return ()
    from steptime.measure.wall.stall_file import read_stalls

    return read_stalls(folder, torn)


def _read_ended_desync(folder: Path) -> EndedDesync | None:
    if not (folder / files.STALLS).exists():
        return None
    from steptime.measure.wall.stall_file import read_ended_desync

    return read_ended_desync(folder)


def _take_memory(processes: Sequence[Line], torn: Torn) -> tuple[MemoryTold, ...]:
    if not any(kind_of(line) == kinds.MEMORY_HELD for line in processes):
        return ()
    from steptime.measure.memory.memory_anatomy import read_memory

    return read_all(read_memory, processes, (kinds.MEMORY_HELD,), torn)


def _read_counted(path: Path, torn: Torn) -> tuple[CountSeen, ...]:
    """Return the updates that an extra child counted, or why it counted nothing."""
    if not os.path.lexists(path):
        return ()
    from steptime.measure.fold.rank_signals import read_count

    return read_all(read_count, read_lines(path, torn), (kinds.COUNT,), torn)


def _read_counted_training(path: Path) -> int:
    """Return which training the extra child counted; it is told where there are several."""
    head = next(read_lines(path), {})
    number = head.get("training")
    return number if type(number) is int else 1


def _read_command(path: Path) -> CommandRecord:
    try:
        text = read_regular(path)
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        raise DamagedRunError(
            f"{path.parent} is no run folder: no file {path.name} is in it.", hint=_OTHERS
        ) from None
    return decode(CommandRecord, text, where=str(path))


def _read_workers(path: Path, torn: Torn) -> list[tuple[WorkerHead, WorkerSums]]:
    """Return the workers that wrote to this file, one after the other."""
    lines = read_lines(path, torn)
    first = take_head(WorkerHead, lines, path, torn)
    if first is None:
        return []
    rest = list(lines)
    later = take_all(WorkerHead, rest, (kinds.HEAD,), torn)
    sums: dict[int, WorkerSums] = {}
    for found in take_all(WorkerSums, rest, (kinds.WORKER,), torn):
        sums[found.pid] = _after(sums.get(found.pid), found)
    heads = {head.pid: head for head in (first, *later)}
    return [(head, sums[pid]) for pid, head in heads.items() if pid in sums]


def _read_worker_facts(paths: Sequence[Path], torn: Torn) -> tuple[WorkerSeen, ...]:
    """Return what workers noted of their first batches."""
    if not paths:
        return ()
    from steptime.measure.sense.sense_record import read_worker

    lines = (line for path in paths for line in read_lines(path, torn))
    return read_all(read_worker, lines, (kinds.WORKER_SENSE,), torn)


def _after(earlier: WorkerSums | None, now: WorkerSums) -> WorkerSums:
    """Return the later sums, with what only an earlier line told."""
    if earlier is None:
        return replace(now, first_fetch_ns=now.fetch_ns + now.collate_ns)
    told = now if now.shared_dirty is not None else earlier
    return replace(
        now,
        shared_dirty=told.shared_dirty,
        private_dirty=told.private_dirty,
        first_fetch_ns=earlier.first_fetch_ns,
    )
