"""Counts the work of the next step: of an update of each optimizer that takes a turn.

The run's own plan of counted updates does it (`count/count_plan.py`): what is counted for an asker
is a line of the record like any other, so the run's report knows it, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .question_watcher import RefusedError

if TYPE_CHECKING:
    from ..timeline.journal import Journal

NEVER_COUNTED = "other_thread"
"""Only the thread that stepped first is counted."""


class CountInquiry:
    """Asks the plan for counted updates, and waits for their work."""

    def __init__(self) -> None:
        self.is_over = False
        self.plan: Any = None
        self.lines: list[dict[str, Any]] = []

    @property
    def is_recording(self) -> bool:
        """Whether updates are scouted or counted."""
        return self.plan is not None and self.plan.is_asked

    def begin(self, journal: Journal) -> bool:
        """Ask the plan as soon as it has counted what it counts by itself at first."""
        self.plan = journal.plan
        if self.plan is None:
            raise RefusedError(NEVER_COUNTED)
        return bool(self.plan.ask(journal, self.lines.append))

    def end_update(self, journal: Journal, optimizer: int) -> None:
        """Look whether everything was said."""
        self.is_over = not self.plan.is_asked

    def result(self) -> dict[str, Any]:
        """Return the lines `count` of the updates of the step.

        Raises:
            RefusedError: they could not be counted.
        """
        missing = next((line["missing"] for line in self.lines if "missing" in line), None)
        if missing is not None or not self.lines:
            raise RefusedError(missing or "no_backward_seen")
        return {"updates": self.lines}

    def give_up(self) -> None:
        """Let the plan count what it has begun, for the record alone."""
        if self.plan is not None:
            self.plan.forget_asker()
