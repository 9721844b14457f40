"""The guest's part of a trial or of a run with a recipe: levers on, and rows that say so.

It exists only where the parent named a plan (`STEPTIME_PLAN`, docs/reference/study-folder.md). The
hooks that are in place anyway call it. In a trial, a lever that fails ends the process: that is the
trial's result. Under a recipe the lever is taken off, and the training continues.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable
from json import dumps
from typing import Any

from ...record import kinds
from ..hooks.context import Context
from ..timeline.journal import Journal
from .edit_sites import SiteNotes
from .lever_facts import FactsBook, count_graphs, world_size
from .lever_session import Owner, Registry
from .lever_stack import LeverStack, NotUndoneError
from .live_blocks import NO_EXPERIMENT, Experiment, Live, Place
from .row_padding import TokenCounter
from .samples import SampleCounter, find_tensor
from .trial_plan import TrialPlan, Wanted, read_plan
from .worker_search import WorkerSearch

FAILED = 86
"""The exit code of a process that a lever's failure ended."""

MAX_ERROR = 300
"""The length of an error's text in a line."""

FULL_UPDATES = 200_000
"""In a trial, a row for each update up to here, as its blocks may be single steps: about 100 MB."""

FACTS_AT = 4
"""Updates after which facts are written; the first ones still find new models and loaders."""

PADDING_AT = 20
"""Updates after which they are written again where batches are padded: more of them were seen."""


class TrialGuest:
    """What the hooks call in a trial: levers, samples, and decisions between two steps."""

    place = "trial"  # of our failures

    def __init__(self, context: Context, plan: TrialPlan, finish: Callable[[], None]) -> None:
        self.context = context
        self.plan = plan
        self.finish = finish
        self.recorder = context.recorder
        self.registry = Registry(context.torch, self.give_up, is_lenient=plan.is_recipe)
        self.stack = LeverStack(self.registry)
        tokens = None if plan.is_recipe else TokenCounter(context.torch).count
        self.samples = SampleCounter(context.torch, tokens)
        self.facts = FactsBook(
            context.torch, self.stack, self.recorder.fail, is_probing=plan.is_probing
        )
        self.sites = SiteNotes(context.torch, self.recorder.fail) if plan.is_probing else None
        self.live: Live | None = None
        self.described: dict[str, Any] | None = None
        self.is_joint = False
        self.last_loss: Any = None
        self.told_counts: Counter[str] = Counter()
        self.num_updates = 0
        self.num_stepped = 0  # of these, updates by an optimizer: before, each backward counts
        self.steps_now = False

    # -- levers

    def put_on(self) -> None:
        """Apply the plan's own levers; those of experiments come on top of them."""
        for wanted in self.plan.levers:
            try:
                self.stack.put_on(wanted, must_undo=False)
            except Exception as error:
                self.fail(wanted, error)
            else:
                self.tell_lever(wanted)
        if self.plan.is_live:
            self.live = Live(
                os.path.join(self.plan.folder, "live.json"),
                self.stack,
                tell=self.tell_lever,
                end_experiment=self.end_experiment,
                is_joint=self.has_others,
                count_fallbacks=lambda: count_graphs()[1],
            )

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
        """End the trial, or only the lever, because one of its callbacks failed."""
        if owner.is_off:
            return  # a call that began while the lever was on
        try:
            if self.plan.is_recipe:
                self.stack.drop(owner)
        finally:
            self.fail(owner.wanted, error)

    def fail(self, wanted: Wanted, error: BaseException) -> None:
        """Write what failed; in a trial, this ends the process."""
        is_fixed = wanted in self.plan.levers or self.live is None
        self.tell_lever(wanted, None if is_fixed else self.here, error)
        if self.plan.is_recipe:
            self.recorder.fail(f"lever:{wanted.name}")
        else:
            self.end_process()

    def end_process(self) -> None:
        """Write what there is and leave at once, so no `finally` of the script's runs."""
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
        """Run an outermost call with gradients of something that may be a model."""
        probe = journal.probe
        if probe is None:
            call = original
        else:

            def call(model: Any, *args: Any, **kwargs: Any) -> Any:
                return probe.run(journal.disturb, original, (model, *args), kwargs, is_call=True)

        try:
            is_model = next(iter(model.parameters()), None) is not None
        except Exception:
            is_model = False  # a module whose own method failed
        if not is_model:
            return call(model, *args, **kwargs)
        compare_draws = take_result = None
        try:
            if self.sites is not None:
                take_result = self.sites.see_call(model, args, kwargs)
            self.samples.begin_work(args, kwargs)
            self.facts.see_training()
            self.facts.see_call(model, find_tensor(self.context.torch.Tensor, (args, kwargs)))
            compare_draws = self.facts.watch_draws()
        except Exception:
            self.recorder.fail("trial")
        num_looks = self.facts.blocks.num_looks
        result = self.facts.look_into(
            model, lambda: self.registry.run_call(call, model, args, kwargs)
        )
        if self.facts.blocks.num_looks > num_looks:
            journal.disturb()  # what the look took is no time of the script's
        if compare_draws is not None:
            compare_draws()
        if take_result is not None:
            take_result(result)
        return result

    def run_backward(
        self, journal: Journal, original: Callable[..., Any], args: Any, kwargs: Any
    ) -> Any:
        """Run an outermost backward call."""
        probe = journal.probe
        if probe is None:
            call = original
        else:

            def call(*args: Any, **kwargs: Any) -> Any:
                return probe.run(journal.disturb, original, args, kwargs, is_call=False)

        self._begin_backward(args, kwargs)
        try:
            return self.registry.run_backward(call, args, kwargs)
        finally:
            self.samples.end_backward()
            self._end_backward()

    def _begin_backward(self, args: Any, kwargs: Any) -> None:
        try:
            self.samples.begin_work()
            self.facts.see_training()
            self.facts.exchanges.see_backward()
            if self.live is not None and self.live.running is not None:
                loss = find_tensor(self.context.torch.Tensor, (args, kwargs))
                self.last_loss = None if loss is None else loss.detach()
        except Exception:
            self.recorder.fail("trial")

    def _end_backward(self) -> None:
        try:
            self.facts.gradients.end_backward(self.registry.optimizers.alive())
        except Exception:
            self.recorder.fail("trial")

    def see_call_without_gradients(self, *, is_evaluation: bool) -> None:
        """Drop a batch that was fetched for a call that trains nothing."""
        known = self.context.trained_datasets
        if is_evaluation or (known and self.context.dataset not in known):
            self.samples.drop_batch()
            self.facts.drop_batch()

    def take_batch(self, iterator: Any, batch: Any) -> None:
        """Take a batch that a loader of the script's gave to this thread."""
        try:
            self.samples.take_batch(batch)
            self.facts.see_batch(iterator, batch)
        except Exception:
            self.recorder.fail("trial")

    def begin_update(
        self, journal: Journal, optimizer: Any, args: Any, kwargs: Any
    ) -> tuple[Any, Any] | None:
        """Prepare an optimizer's step; return the arguments to call it with instead, or None."""
        if journal.scaler is not None:
            self.facts.see_scaler(journal.scaler)
        self.steps_now = True
        registry = self.registry
        self.facts.gradients.begin_update(registry.optimizers.alive())
        registry.meet_optimizer(optimizer)
        if not registry.updates or len(journal.optimizers) > 1:
            return None
        if callable(kwargs.get("closure")):
            return args, {**kwargs, "closure": registry.closing(optimizer, kwargs["closure"])}
        if len(args) > 1 and callable(args[1]):
            return (args[0], registry.closing(optimizer, args[1]), *args[2:]), kwargs
        registry.begin_update(optimizer)
        return None

    @property
    def here(self) -> Place:
        """The place of the current update in an experiment."""
        return NO_EXPERIMENT if self.live is None else self.live.place

    def tag(self) -> tuple[int, ...]:
        """Return what the row of the ending update says about levers and samples."""
        return (*self.here, self.samples.take())

    def end_update(self, journal: Journal, optimizer: int) -> None:
        """Take the end of an update; levers may change before the next one."""
        if self.recorder.journals[0] is not journal:
            return  # one thread decides
        self.num_updates = journal.num_updates
        try:
            if self.steps_now:
                self.num_stepped += 1
                self.facts.exchanges.end_update(is_open=self.facts.is_open)
                self.facts.gradients.end_update()
            if self.is_due and not self.plan.is_recipe:
                journal.disturb()
                if self.num_stepped == FACTS_AT and self.facts.is_open:
                    self.described = None
                self.tell_facts()
            if self.live is not None:
                self.live.end_update(self.num_updates, optimizer)
        except NotUndoneError as error:
            self.fail(error.wanted, error.__cause__ or error)
        except Exception:
            self.recorder.fail("live")
        self.steps_now = False

    @property
    def is_due(self) -> bool:
        """Whether facts are to be written after this update."""
        if self.steps_now and self.num_stepped == FACTS_AT and self.described is not None:
            return not self.described.get("optimizers")  # until now, backward calls counted
        return self.num_updates == FACTS_AT or (
            self.num_updates == PADDING_AT and self.facts.has_padding
        )

    def has_others(self) -> bool:
        """Return whether other ranks train with this one; once true, it stays true."""
        self.is_joint = self.is_joint or world_size(self.context.torch) > 1
        return self.is_joint

    # -- what is written beside the rows

    def tell_facts(self) -> None:
        """Write what is known about script and machine."""
        models, optimizers = self.registry.models.alive(), self.registry.optimizers.alive()
        if self.described is None:  # later they may be gone, or changed by levers
            self.described = self.facts.describe(models, optimizers)
        self.facts.see_numbers(models, optimizers)
        doings = self.facts.doings(self.num_updates)
        doings["switches_on"] = sorted(self.context.switches.mostly_on())
        facts = self.described | doings | {"sample_unit": self.samples.unit}
        if self.sites is not None:
            loaders = self.facts.trained_loaders()
            facts["edit_sites"] = self.sites.describe(optimizers, loaders)
        line = {"k": kinds.FACTS, "n": self.num_updates, "facts": facts}
        self.recorder.lines.append(dumps(line) + "\n")

    def end_experiment(self, experiment: Experiment, fallen: list[int]) -> None:
        """Write that an experiment is over, and what it left behind."""
        graphs, fallbacks = count_graphs()
        is_finite = None
        if self.last_loss is not None:
            is_finite = bool(self.context.torch.isfinite(self.last_loss).all())
        line = {
            "k": kinds.EXPERIMENT,
            "experiment": experiment.number,
            "n": self.num_updates,
            "graphs": graphs,
            "fallbacks": fallbacks,
            "fallen_states": fallen,
            "is_finite": is_finite,
        }
        self.last_loss = None
        self.recorder.lines.append(dumps(line) + "\n")

    # -- as one of the recorder's watchers

    def poll(self, bucket: int, *, is_last: bool) -> str:
        """Return what levers counted and, at the end, the facts again with late loaders."""
        text = ""
        counts = self.registry.counts
        if counts != self.told_counts:
            self.told_counts = counts.copy()
            text = dumps({"k": kinds.LEVER_COUNTS, "n": self.num_updates, "counts": counts}) + "\n"
        if is_last and self.num_updates and not self.plan.is_recipe:
            self.tell_facts()
            text += self.recorder.lines.pop()
        return text

    def reset(self) -> None:
        """Write in the file of a forked child that it has its parent's levers on."""
        self.samples.reset()
        self.num_updates = self.num_stepped = 0
        self.described = None
        self.registry.counts.clear()
        self.told_counts.clear()
        if self.live is not None:
            self.live.reset()
        for owner in self.stack.owners:
            self.tell_lever(owner.wanted)


def describe_error(error: BaseException) -> str:
    """Return an error's class and text, in one line of bounded length."""
    return f"{type(error).__name__}: {error}"[:MAX_ERROR]


def install_trial(context: Context, path: str, finish: Callable[[], None]) -> TrialGuest:
    """Do what the plan says; `finish` writes the last lines of this process."""
    plan = read_plan(path)
    trial = TrialGuest(context, plan, finish)
    context.trial = context.recorder.trial = trial
    context.recorder.watchers.append(trial)
    if not plan.is_recipe:
        context.recorder.full_updates = FULL_UPDATES
        trial.facts.hook_threads()
        trial.facts.hook_autocast()
        trial.facts.hook_loaders()
        trial.facts.habits.hook()
    if plan.is_probing:
        trial.facts.gradients.hook()
    if trial.sites is not None:
        trial.sites.hook()
    if plan.worker_search_s is not None:
        WorkerSearch(context.torch, plan.folder, plan.worker_search_s).hook()
    trial.put_on()
    return trial
