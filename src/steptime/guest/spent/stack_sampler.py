"""Samples the stack of the thread that steps, from a thread of our own.

Hooks see phases; which line of the script takes the time between them, only its stack says. The
thread sleeps between samples for as long as they may cost: a sample takes the interpreter lock for
some 20 µs, and makes the script's thread ask for it again. It blocks all signals, is over before
the process forks, and is started again at a later write.
"""

from __future__ import annotations

import _thread
import gc
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from json import dumps
from time import perf_counter_ns, thread_time_ns
from typing import TYPE_CHECKING, Any

from ...record import kinds
from ..sites.file_owners import FileOwners
from .line_book import LineBook, StackPlace, stack_of

if TYPE_CHECKING:
    from ..timeline.journal import Journal
    from ..timeline.recorder import Recorder

SHARE = 0.002
"""Of the time: a sample costs about 0.1 ms with both switches of threads, so one in 50 ms."""

SWITCHES_NS = 60_000
"""What two switches of threads and cold caches cost the script, beside our own CPU time."""

MANY = 1_000
"""Of so many samples, one in fifty has a share of 2 % within 0.9 percent points; from then on they
are four times rarer."""

SHORTEST_NS, LONGEST_NS = 10_000_000, 1_000_000_000
DUE_NS = 2_000_000_000
"""Until the second line; each pause is a tenth of the time so far, so that a day has 100 lines."""

GOLDEN = 0.618034
"""Turns of the pauses: steps of equal length must not be met at the same place again and again."""

SOON_S, USUAL_S = 0.00005, 0.005
"""How long the script's Python goes on after we asked for the lock. After Python's usual 5 ms it is
elsewhere: what it did when we asked would be told of what came next. Where another thread of the
script wants the lock, or the script has set an interval itself, it stays as it is."""

BEFORE_FORK: list[Callable[[], None]] = []
"""What is called before the process forks: what Python is given itself, it keeps until the end."""

is_registered = False


class StackSampler:
    """Samples the first thread that steps; a watcher of the recorder's writes."""

    place = "spent"

    def __init__(
        self,
        recorder: Recorder,
        owners: FileOwners,
        clock: Callable[[], int] = perf_counter_ns,
    ) -> None:
        self.recorder = recorder
        self.owners = owners
        self.clock = clock
        self.reset()

    def reset(self) -> None:
        """Forget everything: this is a new process, in which no thread of ours runs."""
        self.book = LineBook(self.owners)
        self.stopper: Any = None  # released to stop the thread
        self.ended: Any = None  # released by the thread at its end
        self.thread: int | None = None  # the one that is sampled
        self.journal: Journal | None = None
        self.is_off = not getattr(sys, "_is_gil_enabled", lambda: True)()
        self.num = self.cost_ns = self.told_cost_ns = self.due_ns = self.last_ns = 0
        self.pause_ns = SHORTEST_NS

    def poll(self, bucket: int, *, is_last: bool) -> str:
        """Start the thread where none runs; return the sums every other second."""
        if is_last:
            self.stop()
        elif self.stopper is None and not self.is_off:
            self._start()
        now = self.clock()
        if not self.num or (now < self.due_ns and not is_last):
            return ""
        self.due_ns = now + max(DUE_NS, (now - self.recorder.zero_ns) // 10)
        told, self.told_cost_ns = self.told_cost_ns, self.cost_ns
        self.recorder.flush_ns += self.told_cost_ns - told
        return dumps(self.line()) + "\n"

    def line(self) -> dict[str, Any]:
        """Return what was sampled so far."""
        total_ns = self.book.total_ns()
        return {
            "k": kinds.SPENT,
            "n": self.recorder.num_updates,
            "samples": self.num,
            "ns": total_ns,
            "cost_ns": self.cost_ns,
            "rows": self.book.rows(),
            "libraries": self.book.libraries,
        }

    # -- the thread

    def _start(self) -> None:
        """Sample the thread that calls, which steps; of several, none is sampled."""
        journals = self.recorder.journals
        if self.journal is None:
            if len(journals) != 1:
                self.is_off = True
                return
            self.journal, self.thread = journals[0], _thread.get_ident()
        self.stopper, self.ended = _thread.allocate_lock(), _thread.allocate_lock()
        self.stopper.acquire()
        self.ended.acquire()
        self.last_ns = self.clock()
        _thread.start_new_thread(self._run, (self.stopper, self.ended))

    def stop(self) -> None:
        """End the thread and wait until it is over; the process forks, or ends."""
        stopper, self.stopper = self.stopper, None
        if stopper is None:
            return
        stopper.release()
        self.ended.acquire(timeout=1.0)
        ask_within(USUAL_S, instead_of=SOON_S)

    def _run(self, stopper: Any, ended: Any) -> None:
        try:
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            while not stopper.acquire(timeout=self.pause_ns / 1e9):
                self._sample()
        except BaseException:
            self.is_off = True
            with suppress(BaseException):
                self.recorder.fail(self.place)
        finally:
            ended.release()

    def _sample(self) -> None:
        """Take a sample, and choose when the next one is due."""
        began = thread_time_ns()
        journal = self.journal
        now = self.clock()
        passed, self.last_ns = now - self.last_ns, now
        if journal is None or (journal.resting is not None and journal.resting.is_resting):
            return  # phases and spans are not told apart now
        stack, num_threads = stack_of_thread(self.thread or 0)
        if num_threads > 2:
            ask_within(USUAL_S, instead_of=SOON_S)
        else:
            ask_within(SOON_S, instead_of=USUAL_S)
        self.book.add(stack, max(0, journal.top), passed, journal.num_updates)
        self.num += 1
        spent = thread_time_ns() - began
        self.cost_ns += spent
        mean_ns = SWITCHES_NS + self.cost_ns / self.num
        wanted = mean_ns / SHARE * (1 if self.num < MANY else 4)
        turn = 0.5 + self.num * GOLDEN % 1
        self.pause_ns = int(min(max(wanted, SHORTEST_NS), LONGEST_NS) * turn)


def stack_of_thread(thread: int) -> tuple[list[StackPlace], int]:
    """Return where a thread stands, innermost function first, and how many threads there are.

    Python 3.11 makes a frame's object when it is asked for one. Making it may collect garbage, and
    a finalizer or callback that runs then may give the other thread its turn: that leaves the very
    function, and Python goes on with memory that is no frame. So no collection begins in between.
    """
    is_in_danger = sys.version_info[:2] == (3, 11) and gc.isenabled()
    if is_in_danger:
        gc.disable()
    try:
        frames = sys._current_frames()
        stack, num_threads = stack_of(frames.get(thread)), len(frames)
        frames.clear()  # it holds this function's frame, which holds it: a cycle that keeps values
        return stack, num_threads
    finally:
        if is_in_danger:
            gc.enable()


def ask_within(seconds: float, *, instead_of: float) -> None:
    """Set how long Python goes on after a thread asked for the lock, if that is what it was."""
    if abs(sys.getswitchinterval() - instead_of) < 1e-6:
        sys.setswitchinterval(seconds)


def before_fork() -> None:
    """Do what is due before a fork; nothing once all of it was undone."""
    for act in BEFORE_FORK:
        with suppress(Exception):
            act()


def watch_stacks(context: Any) -> None:
    """Sample the stacks of the thread that steps in this process."""
    global is_registered
    sampler = StackSampler(context.recorder, context.frames.places)
    context.recorder.watchers.append(sampler)
    if not is_registered:
        is_registered = True
        os.register_at_fork(before=before_fork)
    BEFORE_FORK.append(sampler.stop)
    context.undo += [sampler.stop, lambda: BEFORE_FORK.remove(sampler.stop)]
