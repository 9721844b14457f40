"""Device time from pooled events that are read later, never with a synchronize.

At each change of marker an event is put on the current stream. The device time between two events
belongs to the marker that was open on the host between them, under the name that the host's
timeline finally gives it. Events are read once the last one of an update has passed. This has not
been run on a GPU yet; the tests exercise the logic with made-up events.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from ....record.buckets import EVALUATION, NUM_BUCKETS, OTHER, SPANS_KEPT
from ....record.writing import device_line

MAX_WAITING = 200
"""Updates whose events may wait to be read; beyond that, the oldest are dropped and counted."""


class DeviceClock:
    """The device timeline of one thread.

    Args:
        new_event: makes an event with `record()`, `query()` and `elapsed_time(other)` [ms].
        is_capturing: True while a CUDA graph is being captured, when no event may be recorded.
    """

    def __init__(
        self, new_event: Callable[[], Any], is_capturing: Callable[[], bool] = lambda: False
    ) -> None:
        self.new_event = new_event
        self.is_capturing = is_capturing
        self.pool: list[Any] = []
        self.marks: list[tuple[int, Any]] = []
        self.waiting: deque[tuple[int, list[tuple[int, Any]]]] = deque()
        self.lines: list[str] = []
        self.num_lost = 0
        self.batch_at = self.anchor_at = 0

    def mark(self, bucket: int) -> None:
        """Give `bucket` the device work that was queued since the last mark."""
        if self.is_capturing():
            return
        event = self.pool.pop() if self.pool else self.new_event()
        event.record()
        self.marks.append((bucket, event))

    def mark_batch(self) -> None:
        """Remember that the work on a batch begins here."""
        self.batch_at = len(self.marks)

    def anchor(self) -> None:
        """Remember this point: an evaluation that follows takes everything since."""
        self.anchor_at = len(self.marks)

    def here(self) -> int:
        """Return the place of the next mark in this update."""
        return len(self.marks)

    def rename(self, source: int, target: int, *, since: int = 0, until: int | None = None) -> None:
        """Give `target` what was marked as `source` in this update, or between two places of it."""
        for i, (bucket, event) in enumerate(self.marks[since:until], start=since):
            if bucket == source:
                self.marks[i] = (target, event)

    def take_evaluation(self) -> None:
        """Give the evaluation everything that was marked since the anchor."""
        for i, (bucket, event) in enumerate(self.marks[self.anchor_at :], start=self.anchor_at):
            if bucket not in SPANS_KEPT:
                self.marks[i] = (EVALUATION, event)

    def close_update(self, number: int) -> None:
        """Close update `number` with the marks so far; the last mark also opens the next update."""
        if not self.marks:
            return
        self.waiting.append((number, self.marks))
        self.marks = [self.marks[-1]]
        self.batch_at = self.anchor_at = 0
        if len(self.waiting) > MAX_WAITING:
            _, marks = self.waiting.popleft()
            self.pool += [event for _, event in marks[:-1]]
            self.num_lost += 1
        self._read()

    def start_again(self) -> None:
        """Forget the marks of the update that is open: others were not seen."""
        self.pool += [event for _, event in self.marks]
        self.marks = []
        self.batch_at = self.anchor_at = 0

    def _read(self) -> None:
        while self.waiting and self.waiting[0][1][-1][1].query():
            number, marks = self.waiting.popleft()
            sums = [0] * NUM_BUCKETS
            for (_, begin), (bucket, end) in pairwise(marks):
                index = bucket if bucket < NUM_BUCKETS else OTHER
                sums[index] += int(begin.elapsed_time(end) * 1e6)
            self.pool += [event for _, event in marks[:-1]]
            self.lines.append(device_line(number, sums))

    def pop_lines(self) -> list[str]:
        """Return the lines for what was read since the last call."""
        self._read()
        lines, self.lines = self.lines, []
        return lines
