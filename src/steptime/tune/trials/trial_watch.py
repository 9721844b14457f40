"""What a running trial has told so far, read from its folder as it grows.

In: the folder of a trial. Out: updates and their times by process, levers that failed, facts,
experiments that ended. It decides nothing; when a trial has lasted long enough is left to
`tune.trials.trial_process`, what its times say to `measure`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steptime.measure.follow import Follower, Row
from steptime.measure.values.measurement import SPANS

NS, US = 1e-9, 1e-6
_LEADING = 7  # numbers of a row of an update before its wall times


@dataclass(frozen=True, slots=True)
class Tick:
    """One update as it was seen: when it ended [s, the process's clock] and what it took."""

    number: int
    optimizer: int
    end_s: float
    wall_s: float
    compile_s: float


class Process:
    """One process that stepped."""

    def __init__(self, path: Path) -> None:
        self._follower = Follower(path)
        self._buckets: tuple[str, ...] = ()
        self.path = path
        self.rank: int | None = None
        self.head: Row = {}
        self.ticks: list[Tick] = []
        self.levers: list[Row] = []
        self.experiments: list[Row] = []
        self.facts: Mapping[str, Any] = {}
        self.count: Row | None = None
        self.has_ended = False

    def read(self) -> bool:
        """Take in what is new; whether there was an update in it."""
        before = len(self.ticks)
        for row in self._follower.read():
            self._take(row)
        return len(self.ticks) > before

    def _take(self, row: Row) -> None:
        kind = row["k"]
        try:
            if kind == "head":
                self.head, self.rank = row, row.get("rank")
                self._buckets = tuple(row["buckets"])
            elif kind == "u":
                self.ticks += [self._tick(values) for values in row["rows"]]
            elif kind == "p":
                self.ticks += [_late_tick(values) for values in row["rows"]]
            elif kind == "lever":
                self.levers.append(row)
            elif kind == "facts":
                self.facts = row["facts"]
            elif kind == "count":
                self.count = row
            elif kind == "experiment":
                self.experiments.append(row)
            elif kind == "end":
                self.has_ended = True
        except (KeyError, TypeError, IndexError, ValueError):
            return  # a line of another shape; `measure` counts those

    def _tick(self, values: list[int]) -> Tick:
        wall = values[_LEADING : _LEADING + len(self._buckets)]
        by_name = dict(zip(self._buckets, wall, strict=True))
        spans = sum(by_name.get(name, 0) for name in SPANS)
        return Tick(
            number=values[0],
            optimizer=values[2],
            end_s=values[4] * NS,
            wall_s=(sum(wall) - spans) * NS,
            compile_s=by_name.get("compile", 0) * NS,
        )


def _late_tick(values: list[int]) -> Tick:
    return Tick(
        number=values[0],
        optimizer=values[2],
        end_s=values[3] * NS,
        wall_s=values[6] * US,
        compile_s=0.0,
    )


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
    """The folder of a running trial."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._starts = Follower(folder / "processes.jsonl")
        self._processes: dict[str, Process] = {}
        self.rows: list[Row] = []
        """Lines of processes.jsonl: starts, torch, exits."""

    def read(self) -> bool:
        """Take in what is new; whether any process made an update."""
        self.rows += self._starts.read()
        for path in sorted(self._folder.glob("rank-*.jsonl")):
            if path.name not in self._processes:
                self._processes[path.name] = Process(path)
        num_with_news = sum(process.read() for process in self._processes.values())
        return num_with_news > 0

    @property
    def processes(self) -> tuple[Process, ...]:
        """Those that stepped, in the order of their names."""
        return tuple(self._processes.values())

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
    def failed_levers(self) -> tuple[Row, ...]:
        """Lines of levers that could not be applied."""
        return tuple(row for p in self.processes for row in p.levers if row.get("error"))

    @property
    def facts(self) -> Mapping[str, Any]:
        """What the guest saw of script and machine, empty before it has."""
        return next((p.facts for p in self.processes if p.facts), {})
