"""What the hooks of any framework share: the recorder, a journal for each thread, what to undo."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from ..modes.mode import GuestMode
from ..timeline.journal import Journal
from ..timeline.recorder import Recorder
from ..timeline.thread_journals import Journals


class Context:
    """What all hooks share; a framework's own context adds what it knows of the framework.

    Args:
        recorder: of this process.
        mode: what this process is there for.
        journals: gives each thread its journal.
        is_late: whether the script has used the framework before (`guest/late.py`).
    """

    def __init__(
        self, recorder: Recorder, mode: GuestMode, journals: Journals, *, is_late: bool = False
    ) -> None:
        self.recorder = recorder
        self.mode = mode
        self.journals = journals
        self.local = Local(journals, recorder.fail)
        self.is_late = is_late
        self.is_worker = False
        self.num_batches = 0
        self.undo: list[Callable[[], Any]] = []  # takes away what was registered somewhere
        self.trial: Any = None  # set where levers are on: `guest/trial/lever_guest.py`

    @property
    def journal(self) -> Journal:
        """The calling thread's journal."""
        return self.local.journal

    @property
    def first_journal(self) -> Journal | None:
        """Return the journal of the first thread that stepped."""
        journals = self.recorder.journals
        return journals[0] if journals else None

    def guarded(self, place: str, act: Callable[..., None], *args: Any) -> None:
        """Do something of ours; a failure is counted and stops here."""
        try:
            act(*args)
        except BaseException:
            self.recorder.fail(place)


class Local(threading.local):
    """What each thread has of its own."""

    def __init__(self, journals: Journals, fail: Callable[[str], None]) -> None:
        try:
            self.journal = journals.take()
        except BaseException:  # a thread of the script's begins: it must go on
            fail("journal")
            self.journal = journals.spare
