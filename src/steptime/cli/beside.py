"""What is done beside a running command: the machine is sampled, the steps are watched and shown.

Each part has a pace of its own; one that fails is left out from then on, and its note is said when
the command has ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from steptime.cli.main import attempt
from steptime.cli.prepare import RunPlan, note_child

if TYPE_CHECKING:
    from steptime.cli.live import RunLine
    from steptime.watch.outside import Outside
    from steptime.watch.stall_watch import StallWatch

_NEVER_S = 1e6


@dataclass(slots=True, kw_only=True)
class _Part:
    take: Callable[[], float]
    due_s: float


class Beside:
    """The parts; `tick` is called by whoever waits for the command."""

    def __init__(self, notes: list[str], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._notes = notes
        self._clock = clock
        self._parts: list[_Part] = []
        self.sampler: Outside | None = None
        self.line: RunLine | None = None

    def add(self, take: Callable[[], float], *, first_s: float = 1.0) -> None:
        """Call `take` in `first_s`, and then whenever the time that it returns is over [s]."""
        self._parts.append(_Part(take=take, due_s=self._clock() + first_s))

    def tick(self) -> float:
        """Do what is due; seconds until the next part is."""
        for part in self._parts:
            if self._clock() >= part.due_s:
                wait_s = attempt(part.take, tell=self._notes.append)
                part.due_s = self._clock() + (_NEVER_S if wait_s is None else wait_s)
        due_s = min((part.due_s for part in self._parts), default=self._clock() + _NEVER_S)
        return max(0.0, due_s - self._clock())

    def finish(self) -> int | None:
        """The command has ended; how many looks at the machine failed, None if there was none."""
        if self.line is not None:
            attempt(self.line.clear, tell=self._notes.append)
        if self.sampler is None:
            return None
        # A kill by the kernel came after the last look.
        attempt(self.sampler.take_last, tell=self._notes.append)
        return self.sampler.num_failures


def start_beside(plan: RunPlan, child_pid: int, notes: list[str], *, is_live: bool) -> Beside:
    """Everything started; the child's id is in the run folder then, too."""
    beside = Beside(notes)
    beside.sampler = attempt(lambda: _start_sampler(plan, child_pid), tell=notes.append)
    if beside.sampler is not None:
        beside.add(beside.sampler.take)
    watch = attempt(lambda: _start_watch(plan), tell=notes.append)
    if watch is not None:
        beside.add(watch.take)
        if is_live:
            beside.line = attempt(lambda: _start_line(plan, watch), tell=notes.append)
    if beside.line is not None:
        beside.add(beside.line.show)
    return beside


def _start_sampler(plan: RunPlan, child_pid: int) -> Outside:
    """A sampler that has looked once."""
    note_child(plan, child_pid)
    from steptime.watch.outside import Outside

    return Outside(plan.run.folder, root_pid=child_pid)


def _start_watch(plan: RunPlan) -> StallWatch:
    from steptime.watch.stall_watch import StallWatch

    return StallWatch(plan.run.folder, cwd=plan.record.cwd)


def _start_line(plan: RunPlan, watch: StallWatch) -> RunLine:
    from steptime.cli.live import RunLine

    return RunLine(plan.run.folder, watch.newest)
