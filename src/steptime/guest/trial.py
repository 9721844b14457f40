"""The guest's part of a trial, or of a run with a recipe: levers on, and rows that say so.

There only where the parent named a plan (`STEPTIME_PLAN`, docs/reference/study-folder.md). The
hooks that are in place anyway come by here. In a trial a lever that fails ends the process: that
is the trial's result. Under a recipe it is taken off, and the training goes on.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from json import dumps
from typing import Any

from .context import Context
from .journal import Journal
from .plan import Plan, Wanted, read_plan
from .samples import SampleCounter
from .session import Owner, Registry
from .stack import LeverStack

FAILED = 86
"""Exit code of a process that a lever's failure ended."""

MAX_ERROR = 300
"""Characters of an error's text in a line."""

FULL_UPDATES = 200_000
"""A row an update up to here in a trial, whose blocks may be of single steps: about 100 MB."""

NO_EXPERIMENT = (-1, 0, 0, 1)
"""Experiment, round, state, and whether it counts."""


class Trial:
    """What the hooks come by: levers, samples, and what is decided between two steps."""

    def __init__(self, context: Context, plan: Plan, finish: Callable[[], None]) -> None:
        self.context = context
        self.plan = plan
        self.finish = finish
        self.recorder = context.recorder
        self.registry = Registry(context.torch, self.give_up, is_lenient=plan.is_recipe)
        self.stack = LeverStack(self.registry)
        self.samples = SampleCounter(context.torch)
        self.num_updates = 0
        self.place = NO_EXPERIMENT
        self.told: list[tuple[Wanted, int | None]] = []

    # -- levers

    def put_on(self) -> None:
        """Apply the plan's own levers."""
        for wanted in self.plan.levers:
            try:
                self.stack.put_on(wanted, must_undo=False)
            except Exception as error:
                self.fail(wanted, error, state=None)
            else:
                self.told.append((wanted, None))
                self.tell_lever(wanted, state=None)

    def tell_lever(self, wanted: Wanted, *, state: int | None, error: str | None = None) -> None:
        """Write that a lever was applied, or why not."""
        line = {
            "k": "lever",
            "n": self.num_updates,
            "name": wanted.name,
            "settings": dict(wanted.settings),
            "state": state,
            "error": error,
        }
        self.recorder.lines.append(dumps(line) + "\n")

    def give_up(self, owner: Owner, error: BaseException) -> None:
        """A lever failed in what it hung somewhere: the trial's end, or its own."""
        if owner.is_off:
            return  # a call that began while it was on
        try:
            if self.plan.is_recipe:
                self.stack.drop(owner)
        finally:
            self.fail(owner.wanted, error, state=None)

    def fail(self, wanted: Wanted, error: BaseException, *, state: int | None) -> None:
        """Say what failed; in a trial the process ends with it."""
        text = f"{type(error).__name__}: {error}"[:MAX_ERROR]
        self.tell_lever(wanted, state=state, error=text)
        if self.plan.is_recipe:
            self.recorder.fail(f"lever:{wanted.name}")
        else:
            self.end_process()

    def end_process(self) -> None:
        """Write what there is, and leave at once: no `finally` of the script's is to run."""
        try:
            if self.recorder.path is None:
                self.recorder._open()
            self.finish()
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(FAILED)

    # -- what the hooks report

    def run_call(
        self, journal: Journal, original: Callable[..., Any], model: Any, args: Any, kwargs: Any
    ) -> Any:
        """The outermost call with gradients of something that may be a model."""
        look = journal.look
        if look is None:
            call = original
        else:

            def call(model: Any, *args: Any, **kwargs: Any) -> Any:
                return look.run(journal, original, (model, *args), kwargs, is_call=True)

        try:
            is_model = next(iter(model.parameters()), None) is not None
            if is_model:
                self.samples.begin_work(args, kwargs)
        except Exception:
            self.recorder.fail("trial")
            is_model = False
        if not is_model:
            return call(model, *args, **kwargs)
        return self.registry.run_call(call, model, args, kwargs)

    def run_backward(
        self, journal: Journal, original: Callable[..., Any], args: Any, kwargs: Any
    ) -> Any:
        """An outermost backward call."""
        look = journal.look
        if look is None:
            call = original
        else:

            def call(*args: Any, **kwargs: Any) -> Any:
                return look.run(journal, original, args, kwargs, is_call=False)

        self.samples.begin_work()
        try:
            return self.registry.run_backward(call, args, kwargs)
        finally:
            self.samples.end_backward()

    def see_call_without_gradients(self, *, is_evaluation: bool) -> None:
        """An outermost call that trains nothing: a batch that was fetched for it does not count."""
        known = self.context.trained_datasets
        if is_evaluation or (known and self.context.dataset not in known):
            self.samples.drop_batch()

    def take_batch(self, iterator: Any, batch: Any) -> None:
        """A loader of the script's gave a batch to this thread."""
        try:
            self.samples.take_batch(batch)
        except Exception:
            self.recorder.fail("trial")

    def begin_update(self, journal: Journal, optimizer: Any) -> None:
        """An optimizer is about to step."""
        self.registry.begin_update(optimizer, is_outermost=len(journal.optimizers) == 1)

    def tag(self) -> tuple[int, ...]:
        """What the row of the update that ends now says of levers and samples."""
        return (*self.place, self.samples.take())

    def end_update(self, journal: Journal, optimizer: int) -> None:
        """An update ended; between it and the next one levers may change."""
        self.num_updates += 1

    def after_fork(self) -> None:
        """A forked child has what its parent had; it says so in a file of its own."""
        self.samples.reset()
        self.num_updates = 0
        self.place = NO_EXPERIMENT
        for wanted, state in self.told:
            self.tell_lever(wanted, state=state)


def install_trial(context: Context, path: str, finish: Callable[[], None]) -> Trial:
    """Do what the plan says; `finish` ends the records of this process."""
    plan = read_plan(path)
    trial = Trial(context, plan, finish)
    if not plan.is_recipe:
        context.recorder.full_updates = FULL_UPDATES
    context.trial = context.recorder.trial = trial
    trial.put_on()
    return trial
