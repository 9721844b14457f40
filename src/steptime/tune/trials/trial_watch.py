"""What a running trial has told so far, read from its folder as it grows.

In: the folder of a trial. Out: updates and their times by process, levers that failed, facts,
experiments that ended. It decides nothing; when a trial has lasted long enough is left to
`tune.trials.trial_process`, what its times say to `measure`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from steptime.core.codec import from_json
from steptime.errors import DamagedRunError
from steptime.measure.fold.stream import StreamHead
from steptime.measure.tried.trial_lines import LeverLine, batches_of
from steptime.measure.values.measurement import SPANS
from steptime.measure.wall.group_kin import Kin, group_kin
from steptime.record import files, kinds, rows
from steptime.record.lines import Line, LineReader, kind_of
from steptime.record.rows import Layout, MisshapenError, ProgressRow, UpdateRow

NS, US = 1e-9, 1e-6

LATE_S, LATE_SHARE = 2.0, 0.1
"""How far the times that a record tells of may be from ours, in all and of what passed: a line is
on disk 0.2 s after its step, or later on a busy machine. Of CPU time it is as much by core."""

LEAST_NEWS = 2
"""At either end: only the next line shows that one came late."""

_CPU_EVERY_S = 1.0


@dataclass(frozen=True, slots=True)
class Tick:
    """One update as it was seen: when it ended [s, the process's clock] and what it took."""

    number: int
    optimizer: int
    end_s: float
    wall_s: float
    compile_s: float
    cpu_s: float = 0.0
    starts_epoch: bool = False
    num_batches: int = 0


class Process:
    """One process that stepped."""

    def __init__(self, path: Path) -> None:
        self._reader = LineReader(path, remembers=True)
        self._layout = Layout((), ())
        self.path = path
        self.rank: int | None = None
        self.head: StreamHead | None = None
        self.kin: Kin | None = None
        self.is_in_plan = False
        """Whether the guest does here what the trial's plan says."""
        self.ticks: list[Tick] = []
        self._seen_s: list[tuple[float, float]] = []
        """Of each news: when it came by our clock, and when it ended by the record's."""
        self._cpu_s: dict[int, float] = {}
        """CPU time of the process that the record tells of, by the thread that stepped."""
        self._seen_cpu: list[tuple[float, float, float]] = []
        """By our clock, the kernel's count and the record's."""
        self.levers: list[LeverLine] = []
        self.experiments: set[int] = set()
        self.facts: Mapping[str, Any] = {}
        self.counts: list[Line] = []
        self.products: Line | None = None
        self.is_counted = False
        self.has_ended = False

    def read(self, now_s: float) -> bool:
        """Take in what is new; whether there was an update in it."""
        before = len(self.ticks)
        for line in self._reader.read():
            take = _TAKE.get(kind_of(line))
            self.is_in_plan |= kind_of(line) in _OF_PLAN
            if take is not None:
                # A line of another shape is left to `measure`, which counts it.
                with suppress(DamagedRunError, MisshapenError):
                    take(self, line)
        has_news = len(self.ticks) > before
        if has_news:
            self._seen_s.append((now_s, self.ticks[-1].end_s))
        return has_news

    def note_cpu(self, now_s: float, kernel_s: float) -> None:
        """Note what the kernel has counted for this process, with news of it that were just read.

        Where several threads step, each tells of the whole process.
        """
        if len(self._cpu_s) == 1:
            self._seen_cpu.append((now_s, kernel_s, sum(self._cpu_s.values())))

    @property
    def untrue(self) -> tuple[str, dict[str, float]] | None:
        """What of its record cannot be true: the reason of a refusal, with both times [s]."""
        if told := _untrue([(now_s, now_s, end_s) for now_s, end_s in self._seen_s]):
            return "record_untrue", {"told_s": told[2], "passed_s": told[1]}
        if len(self._cpu_s) == 1 and (told := _untrue(self._seen_cpu)):
            return "cpu_untrue", {"told_s": told[2], "kernel_s": told[1]}
        return None

    def was_changed(self) -> bool:
        """Whether its file no longer holds what was read of it."""
        return self._reader.was_changed()

    def _take_head(self, line: Line) -> None:
        self.head = head = from_json(StreamHead, line)
        self.kin = from_json(Kin, line)
        self.rank, self._layout = head.rank, Layout(head.buckets, head.counts)

    def _take_updates(self, line: Line) -> None:
        for row in self._layout.updates(line):
            self.ticks.append(self._tick(row))
            told_s = self._cpu_s.get(row.thread, 0.0) + sum(row.cpu_ns) * NS
            self._cpu_s[row.thread] = told_s

    def _take_progress(self, line: Line) -> None:
        self._cpu_s.clear()  # it leaves out evaluations
        self.ticks += [_late_tick(row) for row in rows.progress(line)]

    def _take_lever(self, line: Line) -> None:
        self.levers.append(from_json(LeverLine, line))

    def _take_facts(self, line: Line) -> None:
        self.facts = rows.field(line, "facts")

    def _take_count(self, line: Line) -> None:
        self.counts.append(line)

    def _take_products(self, line: Line) -> None:
        self.products = line

    def _take_counted(self, _: Line) -> None:
        self.is_counted = True

    def _take_experiment(self, line: Line) -> None:
        self.experiments.add(rows.whole_number(line, "experiment"))

    def _take_end(self, _: Line) -> None:
        self.has_ended = True

    def _tick(self, row: UpdateRow) -> Tick:
        by_name = dict(zip(self._layout.buckets, row.wall_ns, strict=True))
        spans_ns = sum(by_name.get(name, 0) for name in SPANS)
        return Tick(
            number=row.number,
            optimizer=row.optimizer,
            end_s=row.end_ns * NS,
            wall_s=(sum(row.wall_ns) - spans_ns) * NS,
            compile_s=by_name.get("compile", 0) * NS,
            cpu_s=sum(row.cpu_ns) * NS,
            num_batches=batches_of(self._layout, row),
            starts_epoch=by_name.get("epoch_start", 0) > 0,
        )


_TAKE: Mapping[str, Callable[[Process, Line], None]] = {
    kinds.HEAD: Process._take_head,
    kinds.UPDATES: Process._take_updates,
    kinds.PROGRESS: Process._take_progress,
    kinds.LEVER: Process._take_lever,
    kinds.FACTS: Process._take_facts,
    kinds.COUNT: Process._take_count,
    kinds.COUNTED: Process._take_counted,
    kinds.PRODUCTS: Process._take_products,
    kinds.EXPERIMENT: Process._take_experiment,
    kinds.END: Process._take_end,
}


_OF_PLAN = (kinds.TAGS, kinds.LEVER, kinds.FACTS)
"""Lines of a process in which a plan is done."""


def _late_tick(row: ProgressRow) -> Tick:
    return Tick(
        number=row.number,
        optimizer=row.optimizer,
        end_s=row.end_ns * NS,
        wall_s=row.wall_us * US,
        compile_s=0.0,
    )


def _untrue(seen: Sequence[tuple[float, float, float]]) -> list[float] | None:
    """Return what passed, our count and the record's, where they cannot all be true; else None.

    A line may come late: one before an evaluation or a compilation is on disk when that is over. So
    they count from the news of the first quarter that came least late to that of the last quarter,
    each of two at least.
    """
    if len(seen) < 2 * LEAST_NEWS:
        return None
    part_s = (seen[-1][0] - seen[0][0]) / 4
    early_s, late_s = seen[0][0] + part_s, seen[-1][0] - part_s
    early = [one for i, one in enumerate(seen) if i < LEAST_NEWS or one[0] <= early_s]
    late = [one for i, one in enumerate(seen, LEAST_NEWS - len(seen)) if i >= 0 or one[0] >= late_s]
    first, last = (max(some, key=lambda it: it[2] - it[1]) for some in (early, late))
    passed_s, ours_s, told_s = (newest - oldest for oldest, newest in zip(first, last, strict=True))
    most_s = LATE_S * max(1.0, ours_s / max(passed_s, 1e-9))
    is_true = abs(told_s - ours_s) <= most_s + LATE_SHARE * ours_s
    return None if is_true else [passed_s, ours_s, told_s]


def fold_ticks(ticks: Sequence[Tick]) -> list[float]:
    """Time of each step [s]: a round of updates, until one of its optimizers steps again."""
    steps_s: list[float] = []
    stepped: set[int] = set()
    for tick in ticks:
        if not steps_s or tick.optimizer in stepped:
            steps_s.append(0.0)
            stepped.clear()
        stepped.add(tick.optimizer)
        steps_s[-1] += tick.wall_s
    return steps_s


class TrialWatch:
    """The folder of a running trial.

    Args:
        folder: of the trial.
        training: the number of the only training that counts, in the order of start; None for all
            processes.
        cpu_s: returns what the kernel counted for each process so far, by the id that the process
            itself has.
        is_scoped: whether the plan reaches that training alone: then it is known by what its
            processes write, and its number may be another one than before.
    """

    def __init__(
        self,
        folder: Path,
        *,
        training: int | None = None,
        is_scoped: bool = False,
        clock: Callable[[], float] = time.monotonic,
        cpu_s: Callable[[], Mapping[int, float]] = dict,
    ) -> None:
        self._folder, self._clock, self._read_cpu_s = folder, clock, cpu_s
        self._cpu_due_s = -math.inf
        self.training = training
        self._is_scoped = is_scoped
        self._begun_unix_s: dict[int, float] = {}
        self._members: tuple[Process, ...] = ()
        self._num_grouped = 0
        self._starts = LineReader(folder / files.PROCESSES, remembers=True)
        self._processes: dict[str, Process] = {}
        self.has_memory_error = False
        """Whether a process said that it ended because it ran out of memory."""

    def read(self) -> bool:
        """Take in what is new; whether any process made an update."""
        for line in self._starts.read():
            if kind_of(line) == kinds.START and isinstance(line.get("t"), (int, float)):
                self._begun_unix_s[line.get("pid", 0)] = float(line["t"])
            error = line.get("error") if kind_of(line) == kinds.EXIT else None
            self.has_memory_error |= isinstance(error, dict) and error.get("is_memory") is True
        for path in sorted(self._folder.glob(files.RANKS)):
            if path.name not in self._processes:
                self._processes[path.name] = Process(path)
        now_s = self._clock()
        news = [process for process in self._processes.values() if process.read(now_s)]
        if news and now_s >= self._cpu_due_s:
            self._cpu_due_s, cpu_s = now_s + _CPU_EVERY_S, self._read_cpu_s()
            for process in news:
                if process.head is not None and process.head.pid in cpu_s:
                    process.note_cpu(now_s, cpu_s[process.head.pid])
        return bool(news)

    def changed_file(self) -> str | None:
        """The name of a file that no longer holds what was read of it: the guest only appends."""
        if self._starts.was_changed():
            return files.PROCESSES
        return next((name for name, one in self._processes.items() if one.was_changed()), None)

    @property
    def untrue(self) -> tuple[str, dict[str, float]] | None:
        """What of a record cannot be true: the reason of a refusal, with both times [s]."""
        return next((one for p in self._processes.values() if (one := p.untrue)), None)

    @property
    def processes(self) -> tuple[Process, ...]:
        """Those that stepped and count, in the order of their names."""
        found = tuple(self._processes.values())
        if self.training is None:
            return found
        if self._is_scoped:
            return tuple(process for process in found if process.is_in_plan)
        return self._grouped([p for p in found if p.ticks and p.kin is not None])

    def _grouped(self, stepped: Sequence[Process]) -> tuple[Process, ...]:
        """Those of the training with the number that is wanted."""
        if len(stepped) != self._num_grouped and self.training is not None:
            self._num_grouped = len(stepped)
            groups = group_kin([self._kin(process) for process in stepped])
            chosen = groups[self.training - 1 : self.training]
            self._members = tuple(stepped[place] for group in chosen for place in group.shown)
        return self._members

    def _kin(self, process: Process) -> Kin:
        head = process.kin
        assert head is not None
        return replace(
            head,
            t_unix_s=min(head.t_unix_s, self._begun_unix_s.get(head.pid, head.t_unix_s)),
            ended_unix_s=head.t_unix_s + process.ticks[-1].end_s,
            num_updates=len(process.ticks),
        )

    @property
    def first(self) -> Process | None:
        """The process whose clock counts: of the lowest rank the one with most updates."""
        ready = [process for process in self.processes if process.ticks]
        return min(ready, key=lambda p: (p.rank or 0, -len(p.ticks)), default=None)

    @property
    def num_updates(self) -> int:
        """Updates of the first process."""
        return len(self.first.ticks) if self.first is not None else 0

    @property
    def failed_levers(self) -> tuple[LeverLine, ...]:
        """Lines of levers that could not be applied."""
        return tuple(one for p in self.processes for one in p.levers if one.error)

    @property
    def facts(self) -> Mapping[str, Any]:
        """What the guest saw of script and machine, empty before it has."""
        return next((p.facts for p in self.processes if p.facts), {})
