"""Device time by pooled events that are read later, never with a synchronize.

At each change of marker an event is put on the current stream; the device time between
two events belongs to the marker that was open on the host between them, by the name that
the host's timeline gives it in the end. Events are read
when the last one of an update has passed. Not yet run on a GPU by us; the logic is tested
with events made up by the tests.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

from .buckets import EVALUATION, NUM_BUCKETS, OTHER, SPANS_KEPT

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
            values = repr(sums).replace(" ", "")
            self.lines.append(f'{{"k":"d","n":{number},"d":{values}}}\n')

    def take_lines(self) -> list[str]:
        """Hand over what has been read since the last call."""
        self._read()
        lines, self.lines = self.lines, []
        return lines


class OperatorTimes:
    """Device time of single operators, by an event before and one behind each.

    The time between them is that of the operator's work where the device is behind the host; where
    it waits for the host, starting that work is in it. Nothing is waited for: the times are read
    once the last event has passed.

    Args:
        new_event: makes an event, as for `DeviceClock`.
        device_now: the index of the current device, on which the events are put.
        is_capturing: True while a CUDA graph is being captured.
    """

    def __init__(
        self,
        new_event: Callable[[], Any],
        device_now: Callable[[], int],
        is_capturing: Callable[[], bool] = lambda: False,
    ) -> None:
        self.new_event = new_event
        self.device_now = device_now
        self.is_capturing = is_capturing
        self.waiting: list[tuple[Any, Any, tuple[list[int], ...]]] = []
        self.is_whole = True

    def mark(self) -> Any:
        """An event on the current stream; None where there may be none."""
        if not self.is_whole:
            return None
        try:
            if not self.is_capturing():
                event = self.new_event()
                event.record()
                return event
        except Exception:  # in the middle of an operator of the user's: the training goes on
            pass
        self.is_whole = False
        return None

    def book(
        self, pair: tuple[Any, Any], tensors: Iterable[Any], rows: tuple[list[int], ...]
    ) -> None:
        """What is to be known of an operator that was put on the device.

        Args:
            pair: the marks before and behind it.
            tensors: what it read and wrote; where none is on a device there is nothing to time.
            rows: of a tally, which have a place for the time.
        """
        devices = {t.device.index for t in tensors if t.device.type == "cuda"}
        if not devices or not self.is_whole:
            return
        if devices == {self.device_now()}:
            self.waiting.append((*pair, rows))
        else:  # it ran on another stream than that of the marks
            self.is_whole = False

    def have_passed(self) -> bool:
        """Whether all that was timed is done on the device."""
        return not self.waiting or bool(self.waiting[-1][1].query())

    def read(self, place: int) -> bool:
        """Add the times [ns] to their rows; whether those of all operators are known."""
        if not self.waiting or not self.is_whole or not self.have_passed():
            return False
        for began, ended, rows in self.waiting:
            ns = int(began.elapsed_time(ended) * 1e6)
            for row in rows:
                row[place] += ns
        self.waiting = []
        return True


def operator_times(torch: Any) -> OperatorTimes | None:
    """Those of this process's device; None where it uses none."""
    cuda = torch.cuda
    if not cuda.is_initialized():
        return None
    return OperatorTimes(
        lambda: cuda.Event(enable_timing=True),
        cuda.current_device,
        cuda.is_current_stream_capturing,
    )
