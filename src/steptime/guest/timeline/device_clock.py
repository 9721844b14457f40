"""Device time by pooled events that are read later, never with a synchronize.

At each change of marker an event is put on the current stream; the device time between
two events belongs to the marker that was open on the host between them, by the name that
the host's timeline gives it in the end. Events are read
when the last one of an update has passed. Not yet run on a GPU by us; the logic is tested
with events made up by the tests.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from ...record.buckets import EVALUATION, NUM_BUCKETS, OTHER, SPANS_KEPT
from ...record.writing import device_line

MAX_WAITING = 200
"""Updates whose events may wait to be read; beyond it the oldest are given up and counted."""


class DeviceClock:
    """The device timeline of one thread.

    Args:
        new_event: makes an event with `record()`, `query()` and `elapsed_time(other)` [ms].
        is_capturing: True while a CUDA graph is being captured, when no event may be put.
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
        """Device work put since the last mark belongs to `bucket`."""
        if self.is_capturing():
            return
        event = self.pool.pop() if self.pool else self.new_event()
        event.record()
        self.marks.append((bucket, event))

    def mark_batch(self) -> None:
        """The work on a batch begins here."""
        self.batch_at = len(self.marks)

    def anchor(self) -> None:
        """An evaluation that follows takes all since here."""
        self.anchor_at = len(self.marks)

    def rename(self, source: int, target: int, *, since: int = 0) -> None:
        """What was put under `source` in this update turned out to be `target`."""
        for i, (bucket, event) in enumerate(self.marks[since:], start=since):
            if bucket == source:
                self.marks[i] = (target, event)

    def take_evaluation(self) -> None:
        """What was put since the anchor was for an evaluation."""
        for i, (bucket, event) in enumerate(self.marks[self.anchor_at :], start=self.anchor_at):
            if bucket not in SPANS_KEPT:
                self.marks[i] = (EVALUATION, event)

    def close_update(self, number: int) -> None:
        """The marks so far are those of update `number`; the last one opens the next."""
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
        """Hand over what has been read since the last call."""
        self._read()
        lines, self.lines = self.lines, []
        return lines
