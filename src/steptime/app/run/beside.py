"""What is done beside a running command: the machine is sampled, the steps are watched and shown.

Each part has its own pace. A part that fails is left out from then on, and its note is kept
until the command has ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from steptime.app.run.attempt import attempt

if TYPE_CHECKING:
    from steptime.measure.wall.rank_progress import RankProgress
    from steptime.watch.host.outside import Outside
    from steptime.watch.stalls.stall_watch import StallWatch

_NEVER_S = 1e6


class LiveLine(Protocol):
    """Shows how far a run is, wherever that is."""

    def show(self) -> float:
        """Show it now; return the time until it is due again [s]."""

    def clear(self) -> None:
        """Remove it when the command has ended."""


MakeLine = Callable[[Path, "Callable[[], Sequence[Sequence[RankProgress]]]"], LiveLine]
"""Makes the live line of a run, from its folder and a call that says how far the ranks of each
training are."""


@dataclass(slots=True, kw_only=True)
class _Part:
    take: Callable[[], float]
    due_s: float


class Beside:
    """The parts; the loop that waits for the command calls `tick`."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.notes: list[str] = []
        self._clock = clock
        self._parts: list[_Part] = []
        self.sampler: Outside | None = None
        self.line: LiveLine | None = None
        self.tell_changed: Callable[[], None] = lambda: None

    def add(self, take: Callable[[], float]) -> None:
        """Call `take` in a second, and then each time after as long as it returned [s]."""
        self._parts.append(_Part(take=take, due_s=self._clock() + 1.0))

    def tick(self) -> float:
        """Do what is due; return the seconds until the next part is."""
        for part in self._parts:
            if self._clock() >= part.due_s:
                wait_s = _NEVER_S
                with attempt(self.notes.append):
                    wait_s = part.take()
                part.due_s = self._clock() + wait_s
        due_s = min((part.due_s for part in self._parts), default=self._clock() + _NEVER_S)
        return max(0.0, due_s - self._clock())

    def finish(self) -> int | None:
        """End the parts; return how many samples of the machine failed, None if none was taken."""
        if self.line is not None:
            with attempt(self.notes.append):
                self.line.clear()
        with attempt(self.notes.append):
            self.tell_changed()
        if self.sampler is None:
            return None
        # If the kernel killed a process, it did so after the last sample.
        with attempt(self.notes.append):
            self.sampler.take_last()
        return self.sampler.num_failures


def start_beside(
    folder: Path, *, child_pid: int, cwd: str | None, make_line: MakeLine | None = None
) -> Beside:
    """Start everything that runs beside the command, whose first process is `child_pid`."""
    # These imports would otherwise delay the start of the command.
    beside = Beside()
    with attempt(beside.notes.append):
        from steptime.watch.host.outside import Outside

        beside.sampler = Outside(folder, root_pid=child_pid)  # takes its first sample here
        beside.add(beside.sampler.take)
    watch = _LateWatch(folder, cwd)
    beside.add(watch.take)
    beside.tell_changed = watch.tell_changed
    if make_line is not None:
        with attempt(beside.notes.append):
            beside.line = make_line(folder, watch.newest)
            beside.add(beside.line.show)
    return beside


class _LateWatch:
    """A watch for stalls that is made when it is first asked: a short run may be over by then."""

    def __init__(self, folder: Path, cwd: str | None) -> None:
        self._folder = folder
        self._cwd = cwd
        self._made: StallWatch | None = None

    def take(self) -> float:
        return self._watch().take()

    def newest(self) -> Sequence[Sequence[RankProgress]]:
        return self._watch().newest()

    def tell_changed(self) -> None:
        # The folder may have been deleted meanwhile, which is told elsewhere.
        if self._made is not None and self._folder.is_dir():
            from steptime.record import files, kinds
            from steptime.watch.host.host_sampler import append_line

            for name in self._made.changed():
                append_line(self._folder / files.HOST, {"k": kinds.CHANGED, "name": name})

    def _watch(self) -> StallWatch:
        if self._made is None:
            from steptime.watch.stalls.stall_watch import StallWatch

            self._made = StallWatch(self._folder, cwd=self._cwd)
        return self._made
