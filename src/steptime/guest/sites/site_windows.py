"""When updates are examined closely: two windows of walked frames, and a profiler's.

The windows belong to the first thread that steps and are over with the second window of walked
frames. The updates that they make longer are marked so in their rows.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from json import dumps
from time import perf_counter_ns
from typing import TYPE_CHECKING

from ...record import kinds
from ..timeline.recorder import Recorder
from ..timeline.thread_timeline import ThreadTimeline
from .frames import Frames, Stack
from .site_book import Site, SiteBook, TimedMarker, spans_of

if TYPE_CHECKING:
    from ..profile.profile_window import ProfileWindow
    from ..timeline.journal import Journal

WINDOWS = ((1, 3), (24, 27))
"""First and last update: one window for scripts that end or die early, one with warm caches."""

WINDOW_STEPS = 4
"""The steps of a profiler's window: one to warm up, and `profile_window.NUM_STEPS`."""

LATE_AT, LATE_STEPS, MAX_LATE = 4, 4, 8
"""An optimizer that had no window to itself and then steps four times in a row has a loop of its
own: a window of its next updates begins, with warm caches; there are as many of them at most."""

WATCHED_UPDATES = 20_000
"""Later, nobody looks for new optimizers: steps are told one by one up to here."""

SPANS_NS = 2_000_000_000
"""Between two lines on spans: as often as the line on our own cost."""

MAX_ROUND = 4
"""Where more optimizers take turns, a profiler's window is not expected to hold all of them."""

MAX_MARKS = 20_000
"""A step with this many reads is known well enough, and its marks would fill memory: 4 MB."""


class SiteWindows:
    """The windows of one thread, by the number of its updates; 0 is the first.

    Rows of backward calls before an optimizer's first step belong to that update, so the counting
    starts again with it.
    """

    def __init__(
        self,
        frames: Frames,
        clock: Callable[[], int],
        *,
        profile: ProfileWindow | None = None,
    ) -> None:
        self.profile = profile
        self.frames = frames
        self.clock = clock
        self.num_ended = 0
        self.has_stepped = False
        self.lines: list[str] = []
        self.is_over = False
        self.run = (-1, 0)  # the optimizer that stepped last, and how often in a row
        self.walked: set[int] = set()  # optimizers that had a window to themselves
        self.late_end = self.num_late = 0  # last update of a window that an optimizer began
        self._forget()

    def _forget(self) -> None:
        self.marks: list[TimedMarker] | None = None
        self.stack: Stack = ()
        self.began = self.shift = 0
        self.inside: set[int] = set()  # optimizers that stepped in the open window
        self.done: tuple[int, Stack, list[TimedMarker], int, list[int], bool] | None = None

    # -- what is noted in a window

    def mark(self, act: Callable[[ThreadTimeline], None], now: int) -> None:
        """Note a marker: what it does to a timeline, and the functions that are running.

        The walk itself takes time, which is subtracted from what follows.
        """
        if self.marks is None:
            return
        self.marks.append(TimedMarker(act, now - self.shift, self.frames.stack(sys._getframe(1))))
        self.shift += self.clock() - now
        if len(self.marks) > MAX_MARKS:
            self._forget()

    def count(self, bucket: int) -> None:
        """Note a call that is counted but not timed."""
        if self.marks is None:
            return
        began = self.clock()
        now, stack = began - self.shift, self.frames.stack(sys._getframe(1))
        self.marks.append(TimedMarker(lambda timeline: timeline.enter(bucket), now, stack, True))
        self.marks.append(TimedMarker(ThreadTimeline.leave, now, stack))
        self.shift += self.clock() - began

    # -- from update to update

    def end_update(self, journal: Journal, *, is_by_hand: bool) -> None:
        """Take the end of an update: begin or end what the number of the next one calls for."""
        if not is_by_hand and not self.has_stepped:
            self.has_stepped = True
            self.num_ended = 0
            self._forget()
        self.num_ended = number = self.num_ended + 1
        if self.marks is not None:
            self.inside.add(journal.last_optimizer)
            is_late = number > WINDOWS[-1][1] + 1
            if number == self.late_end or any(number == last + 1 for _, last in WINDOWS):
                self.walked |= self.inside if len(self.inside) == 1 else set()
                told = sorted(self.inside)
                self.done = self.began, self.stack, self.marks, number, told, is_late
                self.marks = None
        if any(number == first for first, _ in WINDOWS) or self._is_due_late(journal, number):
            self._begin()
        if self.marks is not None:
            journal.disturb()
        journal.is_attentive = journal.is_direct or self.marks is not None
        is_done = number > WINDOWS[-1][1] and self.marks is None
        self.is_over = is_done and (number > WATCHED_UPDATES or self.num_late >= MAX_LATE)
        if self.profile is not None:
            last = number + WINDOW_STEPS * min(journal.recorder.num_optimizers, MAX_ROUND)
            # A profiler would get in the way of counting operators.
            is_clear = journal.plan is None or journal.plan.is_clear(number, last)
            self.profile.end_update(journal, journal.last_optimizer, may_begin=is_clear)
            self.is_over &= self.profile.is_over

    def _is_due_late(self, journal: Journal, number: int) -> bool:
        """Return whether a window begins because of a loop that no window has seen."""
        before, num = self.run
        optimizer = journal.last_optimizer
        self.run = optimizer, num + 1 if optimizer == before else 1
        if self.run[1] != LATE_AT or optimizer in self.walked or self.num_late >= MAX_LATE:
            return False
        if self.marks is not None or number <= WINDOWS[-1][1] + 1:
            return False
        last = number + LATE_STEPS
        if not (journal.plan is None or journal.plan.is_clear(number, last)):
            self.run = optimizer, 0  # operators are counted now
            return False
        self.num_late += 1
        self.late_end = last
        return True

    @property
    def is_idle(self) -> bool:
        """Whether nothing is walked or profiled now, or is about to be."""
        is_walking = self.marks is not None or self.num_ended <= WINDOWS[-1][1]
        return not (is_walking or self.awaits_profile)

    def skip(self, num: int) -> None:
        """Pass over updates that nothing is known of."""
        self.num_ended += num

    def is_free(self, first: int, last: int) -> bool:
        """Return whether none of these updates is walked or profiled."""
        return not (self.awaits_profile or first <= self.late_end or is_walked(first, last))

    def is_still(self, first: int, last: int) -> bool:
        """Return whether none of these updates is walked, and no profiler records now."""
        is_recording = self.profile is not None and self.profile.is_recording
        return not (is_recording or first <= self.late_end or is_walked(first, last))

    @property
    def awaits_profile(self) -> bool:
        """Whether the user asked for a profile that is still to come."""
        return self.profile is not None and not self.profile.is_over

    def _begin(self) -> None:
        self.stack = self.frames.stack(sys._getframe(1))
        self.marks, self.shift, self.inside = [], 0, set()
        self.began = self.clock()

    # -- what came of it

    def pop_lines(self) -> list[str]:
        """Return the lines made since the last call."""
        lines, self.lines = self.lines, []
        if self.done is not None:
            done, self.done = self.done, None
            began, stack, marks, number, optimizers, is_late = done
            lines += self._fold(began, stack, marks, number, optimizers, is_late=is_late)
        if self.profile is not None and (line := self.profile.pop_line()) is not None:
            lines.append(line)
        return lines

    def pop_last_lines(self) -> list[str]:
        """Return the last lines, with the sites of an unfinished window."""
        if self.profile is not None:
            self.profile.finish()
        lines = self.pop_lines()
        if self.marks:
            is_late = self.num_ended <= self.late_end
            told = sorted(self.inside)
            lines += self._fold(
                self.began, self.stack, self.marks, self.num_ended, told, is_late=is_late
            )
            self._forget()
        return lines

    def _fold(
        self,
        began: int,
        stack: Stack,
        marks: list[TimedMarker],
        num_updates: int,
        optimizers: list[int],
        *,
        is_late: bool,
    ) -> list[str]:
        book = SiteBook(self.frames)
        book.fold(began, stack, marks)
        self.frames.loops.clear()
        if not book.num_updates:
            return []
        line = {
            "k": kinds.SITES,
            "n": num_updates,
            "updates": book.num_updates,
            "optimizers": optimizers,
            "is_late": is_late,
            "sites": book.sites(),
        }
        return [dumps(line) + "\n"]


def is_walked(first: int, last: int) -> bool:
    """Return whether the frames of one of these updates are walked."""
    return any(first <= end and begin <= last for begin, end in WINDOWS)


class SiteWatcher:
    """Gives the recorder, when it writes, the lines of windows and spans."""

    place = "sites"

    def __init__(self, recorder: Recorder, clock: Callable[[], int] = perf_counter_ns) -> None:
        self.recorder = recorder
        self.clock = clock
        self.reset()

    def reset(self) -> None:
        """Forget what was written: this is a new process."""
        self.due_ns = 0
        self.told: list[Site] = []

    def poll(self, bucket: int, *, is_last: bool) -> str:
        """Return the new lines."""
        text = ""
        for journal in list(self.recorder.journals):
            windows: SiteWindows | None = journal.windows
            if windows is None:
                continue
            if is_last:
                text += "".join(windows.pop_last_lines())
            else:
                text += "".join(windows.pop_lines())
            if is_last or windows.is_over:
                journal.windows = None
        return text + self._tell_spans(is_last=is_last)

    def _tell_spans(self, *, is_last: bool) -> str:
        now = self.clock()
        if now < self.due_ns and not is_last:
            return ""
        sites = spans_of([j.spans for j in list(self.recorder.journals) if j.spans is not None])
        if sites == self.told:
            return ""
        self.due_ns, self.told = now + SPANS_NS, sites
        return dumps({"k": kinds.SPANS, "n": self.recorder.num_updates, "sites": sites}) + "\n"
