"""The guest's part of a run with a recipe: levers on, and rows that say so.

It exists only where the parent told a plan (docs/internals/study-folder.md). The
hooks that are in place anyway call it. Under a recipe a lever that fails is taken off, and the
training continues. A trial, which learns about the script besides, is in `trial_guest.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from json import dumps
from typing import Any

from ...record import kinds
from ..frameworks.torch.torch_context import TorchContext
from ..hooks.module_tree import has_parameters
from ..timeline.journal import Journal
from .lever_session import Owner, Registry
from .lever_stack import LeverStack
from .live_blocks import Place
from .trial_plan import TrialPlan, Wanted

MAX_ERROR = 300
"""The length of an error's text in a line."""


class LeverGuest:
    """What the hooks call where levers are on, and nothing else is asked.

    Each of these calls is part of every step, so nothing is looked at that nobody reads.
    """

    place = "trial"  # of our failures

    def __init__(self, context: TorchContext, plan: TrialPlan) -> None:
        self.context = context
        self.plan = plan
        self.recorder = context.recorder
        self.registry = Registry(context.torch, self.give_up, is_lenient=plan.is_recipe)
        self.stack = LeverStack(self.registry)
        self.told_counts: Counter[str] = Counter()
        self.num_updates = 0

    # -- levers

    def put_on(self) -> None:
        """Apply the plan's levers."""
        for wanted in self.plan.levers:
            try:
                self.stack.put_on(wanted, must_undo=False)
            except Exception as error:
                self.fail(wanted, error)
            else:
                self.tell_lever(wanted)

    def tell_lever(
        self, wanted: Wanted, place: Place | None = None, error: BaseException | None = None
    ) -> None:
        """Write that a lever was applied, or why not; `place` is the place in an experiment."""
        line = {
            "k": kinds.LEVER,
            "n": self.num_updates,
            "name": wanted.name,
            "settings": dict(wanted.settings),
            "experiment": place[0] if place else None,
            "state": place[2] if place else None,
            "error": None if error is None else describe_error(error),
        }
        self.recorder.lines.append(dumps(line) + "\n")

    def give_up(self, owner: Owner, error: BaseException) -> None:
        """Take a lever off, because one of its callbacks failed."""
        if owner.is_off:
            return  # a call that began while the lever was on
        try:
            self.drop(owner)
        finally:
            self.fail(owner.wanted, error)

    def drop(self, owner: Owner) -> None:
        """Undo a lever that failed."""
        self.stack.drop(owner)

    def fail(self, wanted: Wanted, error: BaseException) -> None:
        """Write what failed."""
        self.tell_lever(wanted, None, error)
        self.recorder.fail(f"lever:{wanted.name}")

    # -- what the hooks report

    def run_call(
        self, journal: Journal, original: Callable[..., Any], model: Any, args: Any, kwargs: Any
    ) -> Any:
        """Run an outermost call with gradients of something that may be a model."""
        call = probed_call(journal, original)
        if model not in self.registry.models and not has_parameters(model):
            return call(model, *args, **kwargs)
        return self.run_model(journal, call, model, args, kwargs)

    def run_model(
        self, journal: Journal, call: Callable[..., Any], model: Any, args: Any, kwargs: Any
    ) -> Any:
        """Run an outermost call of a model with gradients inside the levers' wrappers."""
        return self.registry.run_call(call, model, args, kwargs)

    def run_backward(
        self, journal: Journal, original: Callable[..., Any], args: Any, kwargs: Any
    ) -> Any:
        """Run an outermost backward call."""
        call = probed_backward(journal, original)
        return self.registry.run_backward(call, args, kwargs)

    def run_plain(self, original: Callable[..., Any], module: Any, args: Any, kwargs: Any) -> Any:
        """Run an outermost call without gradients that is no evaluation."""
        return self.registry.run_plain(original, module, args, kwargs)

    def see_call_without_gradients(self, *, is_evaluation: bool) -> None:
        """Do nothing: nobody asks what was evaluated."""

    def take_batch(self, iterator: Any, batch: Any) -> None:
        """Do nothing: nobody asks what a batch holds."""

    def begin_update(
        self, journal: Journal, optimizer: Any, args: Any, kwargs: Any
    ) -> tuple[Any, Any] | None:
        """Prepare an optimizer's step; return the arguments to call it with instead, or None."""
        registry = self.registry
        registry.meet_optimizer(optimizer)
        if not registry.updates or len(journal.optimizers) > 1:
            return None
        if callable(kwargs.get("closure")):
            return args, {**kwargs, "closure": registry.closing(optimizer, kwargs["closure"])}
        if len(args) > 1 and callable(args[1]):
            return (args[0], registry.closing(optimizer, args[1]), *args[2:]), kwargs
        registry.begin_update(optimizer)
        return None

    def tag(self) -> tuple[int, ...] | None:
        """Return what the row of the ending update says about levers and samples, if anything."""
        return None

    def end_update(self, journal: Journal, optimizer: int) -> None:
        """Take the end of an update."""
        if self.recorder.journals[0] is journal:  # one thread counts
            self.num_updates = journal.num_updates

    # -- as one of the recorder's watchers

    def poll(self, bucket: int, *, is_last: bool) -> str:
        """Return what levers counted."""
        counts = self.registry.counts
        if counts == self.told_counts:
            return ""
        self.told_counts = counts.copy()
        return dumps({"k": kinds.LEVER_COUNTS, "n": self.num_updates, "counts": counts}) + "\n"

    def reset(self) -> None:
        """Write in the file of a forked child that it has its parent's levers on."""
        self.num_updates = 0
        self.registry.counts.clear()
        self.told_counts.clear()
        for owner in self.stack.owners:
            self.tell_lever(owner.wanted)


def probed_call(journal: Journal, original: Callable[..., Any]) -> Callable[..., Any]:
    """Return the call of a model; where it is due, followed operator by operator."""
    probe = journal.probe
    if probe is None:
        return original

    def call(model: Any, *args: Any, **kwargs: Any) -> Any:
        return probe.run(journal.disturb, original, (model, *args), kwargs, is_call=True)

    return call


def probed_backward(journal: Journal, original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a backward call; where it is due, followed operator by operator."""
    probe = journal.probe
    if probe is None:
        return original

    def call(*args: Any, **kwargs: Any) -> Any:
        return probe.run(journal.disturb, original, args, kwargs, is_call=False)

    return call


def describe_error(error: BaseException) -> str:
    """Return an error's class and text, in one line of bounded length."""
    return f"{type(error).__name__}: {error}"[:MAX_ERROR]
