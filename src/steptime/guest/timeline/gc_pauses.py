"""Counts the collections of garbage and their time, through a callback of `gc`.

A collection stops every thread of the process, so it counts for the process: the next update that
ends takes it, in whatever thread it ends.
"""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable, Generator
from functools import partial
from time import perf_counter_ns
from typing import Any

from .interrupts import is_from_handler, raise_later

FULL = 2
"""The oldest generation: a collection of it goes through all objects."""

NONE = (0, 0, 0)

LONG_NS = 1_000_000
"""Collections of the young generation take microseconds, many times a step: sums are enough."""

MAX_LONG = 1_000
"""After this many long ones, the bound for "long" doubles: a script that collects garbage in each
step must not fill the disk."""


class Pauses:
    """The collections so far, their time [ns], and the full ones, as `record.buckets` has them."""

    def __init__(self, *, clock: Callable[[], int] = perf_counter_ns) -> None:
        self.clock = clock
        self.callback: Any = None
        self.reset()

    def reset(self) -> None:
        """Start from zero: this is a new process."""
        self.num = self.ns = self.full = 0
        self.taken = NONE
        self.began: int | None = None
        self.is_due = False
        self.long: list[tuple[int, int, int]] = []  # when, how long, which generation
        self.long_ns = LONG_NS
        self.room = MAX_LONG
        self.failure: BaseException | None = None  # the last one of ours, until it is told
        self.lock = threading.Lock()

    def watch(self, torch: Any) -> None:
        """Hear of each collection from now on.

        Python may call back in the middle of a compiled function. Our frames bear the name of a
        file that dynamo skips, so dynamo leaves them alone.

        What a callback raises, `gc` prints and drops; and a signal that arrives during a collection
        is handled when the callback begins, before its first line. So a function would swallow an
        interrupt. A generator catches it: it goes on inside its `try`. `max` hands it the phase,
        then the facts, and compares two zeros.
        """
        file = os.path.join(os.path.dirname(torch.__file__), "_compile.py")
        for function in (Pauses.note, Pauses.hear):
            function.__code__ = function.__code__.replace(co_filename=file)
        listener = self.hear()
        next(listener)
        callback = partial(max, key=listener.send)
        callback.__module__ = __name__  # who looks at the list sees whose it is
        gc.callbacks.append(callback)
        self.callback = callback

    def unwatch(self) -> None:
        """Hear of no collection any more."""
        gc.callbacks[:] = [one for one in gc.callbacks if one is not self.callback]

    def hear(self) -> Generator[int, Any, None]:
        """Note each collection; called at shutdown as well, and so it reads no global name."""
        note, from_handler, later = self.note, is_from_handler, raise_later
        phase, error = "", None
        while True:
            try:
                while True:
                    try:
                        if error is not None:
                            raised, error = error, None
                            if isinstance(raised, KeyboardInterrupt) or from_handler(raised):
                                later(raised)
                            else:
                                self.failure = raised
                        while True:
                            told = yield 0
                            if type(told) is str:
                                phase = told
                            else:
                                note(phase, told)
                    except GeneratorExit:
                        raise
                    except BaseException as caught:
                        error = caught
            except GeneratorExit:
                return
            except BaseException as caught:  # a second signal, while the first one was kept
                error = caught

    def note(self, phase: str, info: Any) -> None:
        """Time one collection."""
        if phase == "start":
            self.began = self.clock()
        elif self.began is not None:
            began, self.began = self.began, None
            ns = self.clock() - began
            self.ns += ns
            self.num += 1
            self.full += info.get("generation") == FULL
            self.is_due = True
            if ns >= self.long_ns and self.room:
                self.room -= 1
                self.long.append((began, ns, info.get("generation", -1)))

    def take(self) -> tuple[int, ...]:
        """Return number, time and full ones of the collections not taken yet; check `is_due`."""
        if not self.lock.acquire(blocking=False):
            return NONE  # another thread's update takes them now
        try:
            self.is_due = False  # set before the read, so that a collection in between is due again
            now, before = (self.num, self.ns, self.full), self.taken
            self.taken = now
            return tuple(map(int.__sub__, now, before))
        finally:
            self.lock.release()

    def take_long(self) -> list[tuple[int, int, int]]:
        """Return the long ones since the last call: start, duration and generation of each."""
        found, self.long = self.long, []
        if not self.room:
            self.long_ns *= 2
            self.room = MAX_LONG
        return found
