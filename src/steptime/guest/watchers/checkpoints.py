"""What the writing of checkpoints is spent on: gather, copy from the device, serialize, write.

In: calls from the hooks (`hooks/checkpoint_hooks.py`). Out: lines `cp`, a row for each checkpoint.
The parts of a row sum to its time: what is open is what the time goes to.
"""

from __future__ import annotations

from collections.abc import Callable
from json import dumps
from threading import get_ident
from time import perf_counter_ns
from typing import Any

from ...record import kinds
from ..timeline.recorder import Recorder

PARTS = ("other", "gather", "copy", "serialize", "write")
OTHER, GATHER, COPY, SERIALIZE, WRITE = range(len(PARTS))

MAX_ROWS = 1_000
"""A script that saves something in each step has these; then only each hundredth is written."""
EVERY = 100


class Saving:
    """One checkpoint that is being written by a thread."""

    def __init__(self, kind: str, part: int, now: int) -> None:
        self.kind = kind
        self.began = self.last = now
        self.part = part
        self.sums = [0] * len(PARTS)
        self.num_bytes = 0

    def turn(self, part: int, now: int) -> None:
        """Give the time until now to the part that was open, and open another one."""
        self.sums[self.part] += now - self.last
        self.last, self.part = now, part


class CheckpointWatcher:
    """Keeps the checkpoints of a process; a thread writes one at a time, also inside a call."""

    place = "checkpoints"

    def __init__(self, recorder: Recorder, clock: Callable[[], int] = perf_counter_ns) -> None:
        self.recorder = recorder
        self.clock = clock
        self.reset()

    def reset(self) -> None:
        """Forget everything: this is a new process."""
        self.open: dict[int, Saving] = {}
        self.rows: list[list[Any]] = []
        self.num = 0

    def begin(self, kind: str, part: int) -> bool:
        """Open a checkpoint of this thread; return whether none was open."""
        thread = get_ident()
        if thread in self.open:
            return False
        self.open[thread] = Saving(kind, part, self.clock())
        return True

    def current(self, kind: str) -> Saving | None:
        """Return what this thread writes, if it is of this kind."""
        saving = self.open.get(get_ident())
        return saving if saving is not None and saving.kind == kind else None

    def turn(self, kind: str, part: int) -> None:
        """Open another part of what this thread writes."""
        saving = self.current(kind)
        if saving is not None:
            saving.turn(part, self.clock())

    def end(self, *, is_beside: bool) -> None:
        """Close the checkpoint of this thread.

        Args:
            is_beside: another thread makes the steps meanwhile.
        """
        saving = self.open.pop(get_ident(), None)
        if saving is None:
            return
        now = self.clock()
        saving.turn(OTHER, now)
        self.num += 1
        if self.num <= MAX_ROWS or self.num % EVERY == 0:
            began = saving.began - self.recorder.zero_ns
            row = [saving.kind, began, now - saving.began, *saving.sums[1:], saving.num_bytes]
            self.rows.append([*row, int(is_beside), 1 if self.num <= MAX_ROWS else EVERY])

    def poll(self, bucket: int, *, is_last: bool) -> str:
        """Return the new rows."""
        rows, self.rows = self.rows, []
        return dumps({"k": kinds.CHECKPOINTS, "rows": rows}) + "\n" if rows else ""
