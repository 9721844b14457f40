"""Records a few steps with torch's profiler, because somebody asks for it while the script trains.

The window is that of `run --profile` (`profile/profile_window.py`): it begins at the next step that
neither compiles, evaluates nor saves. If the script makes a profiler of its own meanwhile, ours
ends before that one begins, because torch allows one alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..profile.profile_window import ProfileWindow, Wish, watch_for_profilers
from ..sites.site_windows import MAX_ROUND
from .question_watcher import RefusedError

if TYPE_CHECKING:
    from ...record.live.questions import Question
    from ..frameworks.torch.torch_context import TorchContext
    from ..timeline.journal import Journal


class ProfileInquiry:
    """A window of the steps that come."""

    def __init__(self, context: TorchContext, question: Question) -> None:
        self.context = context
        wish = Wish("torch,1,", num_steps=question.num_steps, suffix=f"-asked-{question.id}")
        self.num_steps = question.num_steps
        self.window = ProfileWindow(context.torch, context.recorder, wish, context.switches)
        self.undo: Callable[[], None] | None = None
        self.is_over = False

    @property
    def is_recording(self) -> bool:
        """Whether the profiler records, or gets ready for it."""
        return self.window.is_recording

    def begin(self, journal: Journal) -> bool:
        """Wait for a step to record; the window may open at the end of any update from here on.

        Raises:
            RefusedError: the run has a profile of its own to make.
        """
        if getattr(journal.windows, "awaits_profile", False):
            raise RefusedError("run_profile")
        context = self.context
        self.undo = watch_for_profilers(context.torch, self._yield, context.recorder)
        return True

    def end_update(self, journal: Journal, optimizer: int) -> None:
        """Take the end of an update: begin, continue or end the window."""
        number = journal.num_updates
        num = min(journal.recorder.num_optimizers, MAX_ROUND)
        last = number + (self.num_steps + 1) * max(1, num)
        is_clear = journal.plan is None or journal.plan.is_clear(number, last)
        is_still = journal.windows is None or journal.windows.is_still(number, last)
        self.window.end_update(journal, optimizer, may_begin=is_clear and is_still)
        if self.window.is_over:
            self.is_over = True
            self._stop_watching()

    def result(self) -> dict[str, Any]:
        """Return the facts of a line `profile`.

        Raises:
            RefusedError: nothing was recorded.
        """
        facts = self.window.facts
        if facts is None or "missing" in facts:
            raise RefusedError("failed" if facts is None else facts["missing"])
        return facts

    def give_up(self) -> None:
        """End a window that is open; its trace is dropped."""
        self._stop_watching()
        self.window.give_up("taken_back")

    def _yield(self) -> None:
        """Give way to a profiler of the script's own."""
        if not self.window.is_busy:
            self.window.give_up("own_profiler")

    def _stop_watching(self) -> None:
        undo, self.undo = self.undo, None
        if undo is not None:
            undo()
