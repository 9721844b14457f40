"""The base of all modes, which observes: a run, or a process that a plan does not mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..timeline.kept_beside import CountedUpdates

Targets = dict[str, Callable[[Any], None]]
"""For each module name, what is called once that module has been executed."""


class GuestMode:
    """Observe the training.

    Attributes:
        looks_at_memory: who holds the memory is recorded.
        looks_at_weights: graphs and weights are sampled.
        looks_at_batches: what batches hold is looked at.
        looks_at_epochs: the largest batches of an epoch are looked for.
        walks_frames: the places of markers are looked for in a few updates.
        looks_at_script: which lines take its time, what it does again, whether it trains soundly.
        answers: whoever asks during the run is answered (`steptime attach`).
        records_calls: collectives are written down before they are entered.
        may_rest: the watch may leave out most updates where it would cost too much.
    """

    looks_at_memory = True
    looks_at_weights = True
    looks_at_batches = True
    looks_at_epochs = True
    walks_frames = True
    looks_at_script = True
    answers = True
    records_calls = True
    may_rest = True

    def install(self, context: Any, targets: Targets, finish: Callable[[Any], None]) -> None:
        """Add what this mode needs beside the hooks; called once these are in place.

        Args:
            context: of this process.
            targets: where to wait for modules.
            finish: writes the last lines of the process.
        """

    def new_plan(self, context: Any) -> CountedUpdates | None:
        """Return what decides which updates of the first thread are counted."""
        plan: CountedUpdates = context.plan_counts(is_once=False)
        return plan


class Unread(GuestMode):
    """Observe, because the plan could not be read; installing it says why."""

    may_rest = answers = records_calls = False

    def __init__(self, error: Exception) -> None:
        self.error = error

    def install(self, context: Any, targets: Targets, finish: Callable[[Any], None]) -> None:
        """Raise what went wrong."""
        raise self.error


class Bystander(GuestMode):
    """Observe, because the plan is meant for other processes of the command."""

    may_rest = looks_at_script = False

    def __init__(self, *, records_calls: bool) -> None:
        self.records_calls = records_calls


class Alone(GuestMode):
    """The process is there for one thing, and nothing else is looked at."""

    looks_at_memory = looks_at_weights = looks_at_batches = looks_at_epochs = False
    walks_frames = looks_at_script = answers = records_calls = may_rest = False

    def new_plan(self, context: Any) -> CountedUpdates | None:
        """Count nothing."""
        return None
