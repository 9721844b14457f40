"""Writes what the timelines hand over into the run's folder, many lines at a time.

The format is in docs/internals/run-folder.md. A file is opened for each flush and never held open:
a script that closes all descriptors would otherwise give ours to its checkpoint. A failed write
loses lines and counts them; it never raises. No torch here.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from json import dumps
from operator import sub
from time import perf_counter_ns, thread_time_ns
from time import time as unix_time
from typing import Any, Protocol

from ...record import kinds
from ...record.buckets import (
    BACKWARDS,
    BUCKETS,
    COUNTS,
    FORWARDS,
    NUM_BUCKETS,
    NUM_WRITTEN,
    OTHER,
    PENDING,
)
from ...record.files import MAX_RANKS, PROCESSES, SCHEMA, rank_file
from ...record.hidden_words import hide_words
from ...record.live.process_identity import describe_own_process
from ...record.places import BY_HAND, FULL_UPDATES
from ...record.writing import markers_line, rested_line, rows_line
from .gc_pauses import NONE, Pauses
from .interrupts import let_through
from .round_blocks import Rounds
from .thread_timeline import ThreadTimeline

FLUSH_NS = 200_000_000
"""A step that ended this long ago is on disk at the next marker (docs/internals/run-folder.md)."""

MAX_PENDING = 500
"""Bounds the memory where steps take far less than a millisecond: about 1 MB of lists."""

EVENT_UPDATES = 2_000
EVENT_EVERY = 100
OVERHEAD_NS = 2_000_000_000


def append(path: str, text: str) -> bool:
    """Append `text` to an existing file in one write; return whether all of it was written."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        data = text.encode()
        return os.write(fd, data) == len(data)
    except OSError:
        return False
    finally:
        os.close(fd)


def announce(run: str, kind: str, facts: dict[str, Any]) -> None:
    """Add a line about this process to processes.jsonl."""
    line = {"k": kind, "pid": os.getpid(), "t": unix_time()} | facts
    append(os.path.join(run, PROCESSES), dumps(line) + "\n")


class WriteWatcher(Protocol):
    """Something that the recorder polls at each write; `place` names its failures."""

    place: str

    def poll(self, bucket: int, *, is_last: bool) -> str:
        """Return the lines that are due, or an empty text; `bucket` is what was open."""

    def reset(self) -> None:
        """Forget what was written: this is a new process."""


class UpdateFollower(Protocol):
    """Follows the updates of each thread one by one; `trial/lever_guest.py` does."""

    def tag(self) -> tuple[int, ...] | None:
        """Return what the row of the ending update says besides, if anything."""

    def end_update(self, journal: Any, optimizer: int) -> None:
        """Take the end of an update."""


class Recorder:
    """The stream of one process: it takes updates, formats them and writes them."""

    def __init__(self, run: str, head: Callable[[], dict[str, Any]]) -> None:
        self.run = run
        self.make_head = head
        self.failures: dict[str, int] = {}
        self.failure_texts: dict[str, str] = {}
        self.lock = threading.Lock()
        self.pauses = Pauses()
        self.watchers: list[WriteWatcher] = []
        self.meet_first: Callable[[Any], None] | None = None  # called with the first optimizer
        self.meet: Callable[[int, Any], None] | None = None  # with each, and its number
        self.follower: UpdateFollower | None = None
        self.at_open: list[Callable[[], None]] = []  # called once a file is open
        self.answers: tuple[str, ...] = ()  # what `steptime attach` may ask this process
        self.layers: Any = None  # while layers are looked at: `guest/health/layer_look.py`
        self.full_updates = FULL_UPDATES
        self.reset()

    def reset(self) -> None:
        """Start from nothing: this is a new process, or a forked child, which may never step."""
        self.path: str | None = None
        self.rows: list[list[int]] = []
        self.tags: list[list[int]] = []
        self.lines: list[str] = []
        self.rounds: list[Rounds] = []  # one for each timeline
        self.optimizers: dict[int, tuple[int, Any]] = {}
        self.num_optimizers = 0
        self.who: dict[str, Any] | None = None  # this process among others, at its first update
        self.timelines: list[ThreadTimeline] = []
        self.journals: list[Any] = []
        self.num_updates = 0  # rows so far, including those of backward calls
        self.num_by_hand = 0
        self.num_evaluations = 0  # of closures, in steps of optimizers
        self.num_evaluated_steps = 0  # these steps
        self.num_exchanges: int | None = None  # of gradients, by DDP or FSDP2
        self.num_backwards = 0
        self.num_forwards = 0
        self.lost_updates = 0
        self.flush_ns = 0
        self.rest_ns = 0
        self.overhead_due_ns = 0
        self.nested_per_update = 0
        self.nested_ns = 0
        self.is_torn = False
        self.is_closed = False
        self.pid = os.getpid()
        self.zero_ns = perf_counter_ns()
        self.pauses.reset()
        for watcher in self.watchers:
            watcher.reset()

    def fail(self, place: str) -> None:
        """Count a failure of ours; the training continues.

        Called where an error is caught, of whatever class: a method of the user's that we call may
        raise any. One that a signal handler of the script raised is not ours, and goes on.
        """
        error = sys.exc_info()[1]
        if error is not None:
            let_through(error)
        self.failures[place] = self.failures.get(place, 0) + 1
        self.failure_texts.setdefault(place, repr(error)[:200])

    def failed(self) -> dict[str, Any]:
        """Return our own failures by place, with the text of the first one of each."""
        return {"failures": self.failures, "failure_texts": self.failure_texts}

    # -- taking

    def enroll(self, timeline: ThreadTimeline) -> None:
        """Give the thread of a timeline its number: 0 is the first that stepped."""
        if not self.timelines:
            self.pauses.take()  # what was collected before (imports) belongs to no step
            self.pauses.take_long()
        timeline.thread = len(self.timelines)
        self.timelines.append(timeline)
        self.rounds.append(Rounds(timeline.thread))

    def add(self, timeline: ThreadTimeline, optimizer: int, skipped: int | None) -> None:
        """Take the sums of a finished update; `timeline` then makes new lists."""
        if self.path is None:
            self.open()
        if timeline.thread < 0:
            self.enroll(timeline)
        number = self.num_updates
        self.num_updates = number + 1
        self.num_by_hand += optimizer == BY_HAND
        self.num_backwards += timeline.wall[BACKWARDS]
        self.num_forwards += timeline.wall[FORWARDS]
        row = [
            *(number, timeline.thread, optimizer),
            *(timeline.start - self.zero_ns, timeline.last - self.zero_ns),
            *(
                -1 if skipped is None else skipped,
                2 if timeline.is_disturbed else int(timeline.is_sampled),
            ),
            *timeline.wall[:NUM_WRITTEN],
            *timeline.cpu[:NUM_BUCKETS],
        ]
        rounds = self.rounds[timeline.thread]
        begins = rounds.begins_with(optimizer)
        if number < self.full_updates or not (begins or rounds.is_open):
            self.rows.append(row)
            if timeline.tag is not None:
                self.tags.append([number, *timeline.tag])
        elif (done := rounds.add(row, begins=begins)) is not None:
            self.lines.append(done)
        if timeline.events:
            self.lines.append(markers_line(number, timeline.events))
        timeline.events = (
            [] if number + 1 < EVENT_UPDATES or (number + 1) % EVENT_EVERY == 0 else None
        )
        if timeline.device is not None:
            timeline.device.close_update(number)

    def see_exchange(self) -> None:
        """Count an exchange of gradients."""
        self.num_exchanges = (self.num_exchanges or 0) + 1

    def end_block(self, timeline: ThreadTimeline) -> None:
        """Write the rounds of a thread that are not in a line yet: updates without a row follow."""
        if timeline.thread >= 0 and (done := self.rounds[timeline.thread].close()) is not None:
            self.lines.append(done)
            self.rounds[timeline.thread] = Rounds(timeline.thread)

    def add_rested(
        self,
        timeline: ThreadTimeline,
        optimizers: Sequence[int],
        begin_ns: int,
        ends_ns: Sequence[int],
        cpu_ns: int,
    ) -> None:
        """Take updates that were only counted and timed.

        Args:
            timeline: of their thread.
            optimizers: whose they are, in turns.
            begin_ns: when the first of them began.
            ends_ns: when each of them ended.
            cpu_ns: CPU time of the process in all of them.
        """
        zero_ns, first = self.zero_ns, self.num_updates
        pauses = self.pauses.take() if self.pauses.is_due else NONE
        row = [first, timeline.thread, begin_ns - zero_ns, ends_ns[-1] - zero_ns, cpu_ns, *pauses]
        edges = [(at - zero_ns) // 1000 for at in (begin_ns, *ends_ns)]
        self.lines.append(rested_line(row, optimizers, list(map(sub, edges[1:], edges))))
        self.num_updates += len(ends_ns)

    def index_of(self, optimizer: Any) -> int:
        """Return the number of an optimizer, in the order of first steps."""
        key = id(optimizer)
        known = self.optimizers.get(key)
        if known is None or known[1]() is not optimizer:
            if not self.num_optimizers and self.meet_first is not None:
                self.meet_first(optimizer)
            if self.meet is not None:
                self.meet(self.num_optimizers, optimizer)
            known = self.optimizers[key] = (self.num_optimizers, weakref.ref(optimizer))
            self.num_optimizers += 1
        return known[0]

    # -- writing

    def flush(self, bucket: int = OTHER, *, is_last: bool = False, polls: bool = True) -> None:
        """Write all that is pending; a second caller returns at once instead of waiting.

        `polls` says whether the watchers are asked, too, which takes most of the time.
        """
        if not self.lock.acquire(blocking=False):
            return
        taken: list[list[Any]] = [[], [], []]
        try:
            began = thread_time_ns()
            for timeline in self.timelines:
                if timeline.device is not None:
                    self.lines += timeline.device.pop_lines()
            taken = [self.rows, self.tags, self.lines]
            self.rows, self.tags, self.lines = [], [], []
            rows, tags, lines = taken[0], taken[1], [*taken[2]]
            if fresh := [row for rounds in self.rounds for row in rounds.take_fresh()]:
                lines.append(rows_line(kinds.PROGRESS, fresh))
            if tags:
                lines.insert(0, rows_line(kinds.TAGS, tags))
            if rows:
                lines.insert(0, rows_line(kinds.UPDATES, rows))
            watchers = self.watchers if polls else ()
            lines += [self._poll(watcher, bucket, is_last=is_last) for watcher in watchers]
            self._write(lines, len(rows))
            taken = [[], [], []]
            self.flush_ns += thread_time_ns() - began
            self._write_overhead()
        except BaseException:
            try:
                self.fail("flush")
            except BaseException:  # an interrupt: what it kept from the disk is written next
                self.rows[:0], self.tags[:0], self.lines[:0] = taken
                raise
        finally:
            self.lock.release()

    def _poll(self, watcher: WriteWatcher, bucket: int, *, is_last: bool) -> str:
        try:
            return watcher.poll(bucket, is_last=is_last)
        except BaseException:
            self.fail(watcher.place)
            return ""

    def _write(self, lines: list[str], num_updates: int = 0) -> None:
        if not lines:
            return
        text = "".join(lines)
        if self.is_torn:
            text = "\n" + text  # the write before this one may have stopped in the middle of a line
        self.is_torn = self.path is None or not append(self.path, text)
        if self.is_torn:
            self.lost_updates += num_updates

    def _write_overhead(self, *, now_due: bool = False) -> None:
        now = perf_counter_ns()
        if now < self.overhead_due_ns and not now_due:
            return
        self.overhead_due_ns = now + OVERHEAD_NS
        num_rested = sum(j.num_rested for j in self.journals)
        values = {
            "k": kinds.COST,
            "updates": self.num_updates - self.num_by_hand,
            "rows": self.num_updates,
            "evaluations": self.num_evaluations,
            "evaluated_steps": self.num_evaluated_steps,
            "self_ns": sum(
                j.self_ns * (j.num_updates - j.num_rested) // max(1, j.num_sampled)
                for j in self.journals
            ),
            "flush_ns": self.flush_ns,
            "rest_ns": self.rest_ns,
            "nested_calls": self.nested_per_update * (self.num_updates - num_rested),
            "nested_ns": self.nested_ns,
            "lost_updates": self.lost_updates,
            "exchanges": self.num_exchanges,
        }
        self._write([dumps(values) + "\n"])

    def close(self) -> None:
        """Write what is left, and that the process ended in order."""
        if self.pid != os.getpid():
            return
        for journal in self.journals:
            journal.replay()
        if self.path is None:
            return
        self.lines += [line for line in (r.close() for r in self.rounds) if line]
        for rounds in self.rounds:
            rounds.take_fresh()
        self.flush(is_last=True)
        self._write_overhead(now_due=True)
        tails = [timeline.wall[:NUM_BUCKETS] for timeline in self.timelines]
        left = sum(timeline.wall[BACKWARDS] for timeline in self.timelines)
        end = {
            "k": kinds.END,
            "t": perf_counter_ns() - self.zero_ns,
            "updates": self.num_updates - self.num_by_hand,
            "backwards": self.num_backwards + left,
            "tail": [sum(values) for values in zip(*tails)] if tails else [],
        } | self.failed()
        self._write([dumps(end) + "\n"])

    # -- opening

    def open(self) -> None:
        """Claim a file of our own, write its head, and call who waits for that."""
        head = self.make_head()
        rank = head["rank"]
        if rank is None:
            head["rank"], self.path = self._claim_next()
        else:
            self.path = self._claim(rank_file(rank)) or self._claim(rank_file(rank, os.getpid()))
        if self.path is None:
            self.path = ""  # nothing can be written; each append fails and is counted
        head |= describe_own_process() | {
            "k": kinds.HEAD,
            "schema": SCHEMA,
            "pid": os.getpid(),
            "python": "{}.{}.{}".format(*sys.version_info[:3]),
            "t_unix_s": unix_time(),
            "t_ns": perf_counter_ns(),
            "argv": hide_words(sys.argv[:50]),
            "buckets": BUCKETS,
            "pending": PENDING,
            "counts": COUNTS,
        }
        head["t_unix_s"] -= (head["t_ns"] - self.zero_ns) / 1e9
        head["t_ns"] = self.zero_ns
        self._write([dumps(head) + "\n"])
        for act in self.at_open:
            act()

    def _claim(self, name: str) -> str | None:
        path = os.path.join(self.run, name)
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o644))
        except OSError:
            return None
        return path

    def _claim_next(self) -> tuple[int, str | None]:
        if not os.path.isdir(self.run):
            return 0, None
        for rank in range(MAX_RANKS):
            path = self._claim(rank_file(rank))
            if path is not None:
                return rank, path
        return 0, None
