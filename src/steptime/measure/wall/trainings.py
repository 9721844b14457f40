"""Finds the trainings of a run: which files belong to each, when it started, and with what words.

In: a run's folder, and the lines of its processes. Out: a `FoundTraining` for each, in the order of
start. Of each file it reads only the first line and the newest ones: `measure.run_records` reads
the files of one training at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from steptime.measure.fold.jsonl import take_all
from steptime.measure.values.training_values import CommandTraining
from steptime.measure.wall.group_kin import TrainingGroup, group_kin
from steptime.measure.wall.rank_progress import MAX_BYTES, RankProgress, open_rank
from steptime.record import files, kinds
from steptime.record.lines import Torn, read_lines

_BY_MULTIPROCESSING = ("--multiprocessing-fork", "multiprocessing.forkserver")
"""What stands in the words of a child that Python's multiprocessing started by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessBegin:
    """The beginning of a Python process: its time [s since 1970], and its words."""

    pid: int
    t: float
    argv: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTraining:
    """One training, and its files.

    Attributes:
        training: what is told about it.
        paths: the files of the processes that are measured.
        rank_of: rank by process id, where the record has only an order of start.
        pids: its processes, with those of starts that are not measured.
        parents: the processes that started them.
        unshown: ranks of the starts that are not measured.
    """

    training: CommandTraining
    paths: tuple[Path, ...]
    rank_of: Mapping[int, int]
    pids: frozenset[int]
    parents: frozenset[int]
    unshown: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Glance:
    """One file, its process, and how it began."""

    path: Path
    rank: RankProgress
    begin: ProcessBegin | None

    @property
    def started_unix_s(self) -> float:
        began_unix_s = self.rank.began_unix_s
        return began_unix_s if self.begin is None else min(self.begin.t, began_unix_s)

    @property
    def command(self) -> tuple[str, ...]:
        words = () if self.begin is None else self.begin.argv
        is_known = words and not any(mark in word for word in words for mark in _BY_MULTIPROCESSING)
        return words if is_known else ("python", *self.rank.argv) if self.rank.argv else ()


def find_trainings(
    paths: Sequence[Path], begins: Iterable[ProcessBegin]
) -> tuple[tuple[FoundTraining, ...], tuple[Path, ...]]:
    """Return the trainings of a run, and the files of processes that made no step.

    Args:
        paths: the files of the processes that may have stepped.
        begins: the processes of the run, as they said themselves.

    Raises:
        OSError: a file cannot be read.
    """
    by_pid: dict[int, list[ProcessBegin]] = {}
    for begin in begins:
        by_pid.setdefault(begin.pid, []).append(begin)
    found = [_glance(path, by_pid) for path in paths]
    stepped = [one for one in found if isinstance(one, _Glance)]
    others = tuple(one for one in found if isinstance(one, Path))
    groups = group_kin([replace(one.rank.kin, t_unix_s=one.started_unix_s) for one in stepped])
    trainings = [
        _found(group, stepped, number=number, num_trainings=len(groups))
        for number, group in enumerate(groups, start=1)
    ]
    return tuple(_with_neighbors(one, trainings) for one in trainings), others


def trainings_in(folder: Path) -> tuple[FoundTraining, ...]:
    """Return the trainings of a run's folder, as far as it has come.

    Raises:
        OSError: a file cannot be read.
    """
    torn = Torn()
    lines = read_lines(folder / files.PROCESSES, torn)
    begins = take_all(ProcessBegin, lines, (kinds.START,), torn)
    return find_trainings(sorted(folder.glob(files.RANKS)), begins)[0]


def _glance(path: Path, begins: Mapping[int, Sequence[ProcessBegin]]) -> _Glance | Path:
    """Return what the ends of a file show; the path alone where no step is in it."""
    rank = open_rank(path, now_s=0.0)
    if rank is None:
        return path
    rank.read(0.0)
    if not rank.num_updates and path.stat().st_size <= MAX_BYTES:
        return path
    # A process id may have been used before; the last process that began early enough is meant.
    earlier = [one for one in begins.get(rank.pid, ()) if one.t <= rank.began_unix_s + 1.0]
    return _Glance(path=path, rank=rank, begin=max(earlier, key=lambda one: one.t, default=None))


def _found(
    group: TrainingGroup, stepped: Sequence[_Glance], *, number: int, num_trainings: int
) -> FoundTraining:
    members = [stepped[place] for place in group.all]
    shown = sorted((stepped[place] for place in group.shown), key=lambda one: one.rank.rank)
    by_order = [
        one for one in shown if one.rank.is_numbered_by_order and one.rank.kin.ppid is not None
    ]
    unshown = {stepped[place].rank.rank for place in group.all if place not in group.shown}
    first = shown[0]
    last_unix_s = max(one.rank.last_unix_s for one in members)
    training = CommandTraining(
        number=number,
        num_trainings=num_trainings,
        command=first.command,
        pid=first.rank.pid,
        started_unix_s=min(one.started_unix_s for one in members),
        last_update_unix_s=last_unix_s,
        lasted_s=last_unix_s - min(one.rank.began_unix_s for one in members),
        num_restarts=len(group.starts) - 1,
    )
    return FoundTraining(
        training=training,
        paths=tuple(sorted(one.path for one in shown)),
        rank_of={one.rank.pid: rank for rank, one in enumerate(by_order)},
        pids=frozenset(one.rank.pid for one in members),
        parents=frozenset(ppid for one in members if (ppid := one.rank.kin.ppid) is not None),
        unshown=tuple(sorted(unshown)),
    )


def _with_neighbors(found: FoundTraining, all_found: Sequence[FoundTraining]) -> FoundTraining:
    """Return the training with the numbers of those that stepped at the same time."""
    own = found.training
    beside = tuple(
        other.training.number
        for other in all_found
        if other is not found
        and other.training.started_unix_s < own.last_update_unix_s
        and own.started_unix_s < other.training.last_update_unix_s
    )
    return replace(found, training=replace(own, beside=beside))
