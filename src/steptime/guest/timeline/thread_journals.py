"""Which journal a thread notes in: its own, unless autograd started the thread.

For each device autograd has a thread that runs what the user attaches to a backward call: hooks
that step an optimizer, a checkpoint's second forward. The caller waits meanwhile, so what happens
there belongs to the caller's timeline. On the CPU the caller does this work itself. The path of a
device has been tested with made-up threads only.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable

from .journal import Journal


class Journals:
    """Gives each thread a journal when it asks for the first time.

    Args:
        make: makes a journal.
        is_inside_backward: whether the asking thread runs a part of another thread's backward call.
    """

    def __init__(self, make: Callable[[], Journal], is_inside_backward: Callable[[], bool]) -> None:
        self.make = make
        self.is_inside_backward = is_inside_backward
        self.known: list[weakref.ref[Journal]] = []  # a set is not safe with two threads at once
        self.spare = make()  # notes nothing, for a thread whose own could not be made
        self.spare.mute()

    def take(self) -> Journal:
        """Return the journal of the only thread that waits in a backward call, else a new one."""
        if self.is_inside_backward():
            known = [reference() for reference in self.known]
            waiting = [journal for journal in known if journal is not None and journal.in_backward]
            if len(waiting) == 1:
                return waiting[0]
        journal = self.make()
        alive = [reference for reference in self.known if reference() is not None]
        self.known = [*alive, weakref.ref(journal)]
        return journal

    def mute(self) -> None:
        """Let all journals, and those of new threads, note nothing any more."""
        make = self.make

        def make_muted() -> Journal:
            journal = make()
            journal.mute()
            return journal

        self.make = make_muted
        for reference in self.known:
            if (journal := reference()) is not None:
                journal.mute()


def inside_backward(torch_c: object) -> Callable[[], bool]:
    """Return a function that asks torch whether this thread runs a part of a backward call.

    Where torch cannot say, the answer is no.
    """
    number_of = getattr(torch_c, "_current_graph_task_id", None)
    return (lambda: False) if number_of is None else lambda: number_of() != -1
