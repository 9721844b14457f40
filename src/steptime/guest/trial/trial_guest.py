"""The guest's part of a trial: levers on, rows that say so, and what is learned about the script.

It exists only where the parent told a plan (docs/internals/study-folder.md). The
hooks that are in place anyway call it. In a trial, a lever that fails ends the process: that is the
trial's result.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from json import dumps
from typing import Any

from ...record import kinds
from ..frameworks.torch.torch_context import TorchContext
from ..timeline.journal import Journal
from .lever_facts import FactsBook, count_graphs, world_size
from .lever_guest import LeverGuest, probed_backward
from .lever_session import Owner
from .lever_stack import NotUndoneError
from .live_blocks import NO_EXPERIMENT, Experiment, Live, Place
from .looks.edit_sites import SiteNotes
from .looks.row_padding import TokenCounter
from .samples import SampleCounter, find_tensor
from .shown import ShownFile, ShownMemory
from .trial_plan import TrialPlan, Wanted
from .worker_search import WorkerSearch

FAILED = 86
"""The exit code of a process that a lever's failure ended."""

FULL_UPDATES = 200_000
"""In a trial, a row for each update up to here, as its blocks may be single steps: about 100 MB."""

FACTS_AT = 4
"""Updates after which facts are written; the first ones still find new models and loaders."""

PADDING_AT = 20
"""Updates after which they are written again where batches are padded: more of them were seen."""


class TrialGuest(LeverGuest):
    """What the hooks call in a trial: levers, samples, and decisions between two steps."""

    def __init__(self, context: TorchContext, plan: TrialPlan, finish: Callable[[], None]) -> None:
        super().__init__(context, plan)
        self.finish = finish
        self.samples = SampleCounter(context.torch, TokenCounter(context.torch).count)
        self.facts = FactsBook(
            context.torch, self.stack, self.recorder.fail, is_probing=plan.is_probing
        )
        self.sites = SiteNotes(context.torch, self.recorder.fail) if plan.is_probing else None
        self.live: Live | None = None
        self.described: dict[str, Any] | None = None
        self.is_joint = False
        self.last_loss: Any = None
        self.num_stepped = 0  # of these, updates by an optimizer: before, each backward counts
        self.steps_now = False

    # -- levers

    def put_on(self) -> None:
        """Apply the plan's own levers; those of experiments come on top of them."""
        super().put_on()
        if self.plan.is_live:
            shown = self.plan.shown
            self.live = Live(
                ShownMemory(shown)
                if isinstance(shown, int)
                else ShownFile(os.path.join(shown, "live.json")),
                self.stack,
                tell=self.tell_lever,
                end_experiment=self.end_experiment,
                is_joint=self.has_others,
                count_fallbacks=lambda: count_graphs()[1],
            )

    def drop(self, owner: Owner) -> None:
        """Leave a lever that failed on: the process ends."""

    def fail(self, wanted: Wanted, error: BaseException) -> None:
        """Write what failed, and end the process."""
        is_fixed = wanted in self.plan.levers or self.live is None
        self.tell_lever(wanted, None if is_fixed else self.here, error)
        self.end_process()

    def end_process(self) -> None:
        """Write what there is and leave at once, so no `finally` of the script's runs."""
        try:
            if self.recorder.path is None:
                self.recorder.open()
            self.finish()
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(FAILED)

    # -- what the hooks report

    def run_model(
        self, journal: Journal, call: Callable[..., Any], model: Any, args: Any, kwargs: Any
    ) -> Any:
        """Run an outermost call of a model with gradients; learn from it."""
        compare_draws = take_result = None
        try:
            if self.sites is not None:
                take_result = self.sites.see_call(model, args, kwargs)
            self.samples.begin_work(args, kwargs)
            self.facts.see_training()
            tensor = find_tensor(self.context.torch.Tensor, (args, kwargs))
            self.facts.see_call(model, tensor, (args, kwargs))
            compare_draws = self.facts.watch_draws()
        except BaseException:
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
        call = probed_backward(journal, original)
        self._begin_backward(args, kwargs)
        try:
            return self.registry.run_backward(call, args, kwargs)
        finally:
            self.samples.end_backward()
            try:
                self.facts.gradients.end_backward(self.registry.optimizers.alive())
            except BaseException:
                self.recorder.fail("trial")

    def _begin_backward(self, args: Any, kwargs: Any) -> None:
        try:
            self.samples.begin_work()
            self.facts.see_training()
            self.facts.exchanges.see_backward()
            if self.live is not None and self.live.running is not None:
                loss = find_tensor(self.context.torch.Tensor, (args, kwargs))
                self.last_loss = None if loss is None else loss.detach()
        except BaseException:
            self.recorder.fail("trial")

    def run_plain(self, original: Callable[..., Any], module: Any, args: Any, kwargs: Any) -> Any:
        """The same, noting whether the module ever trains."""
        self.facts.see_plain(module)
        return super().run_plain(original, module, args, kwargs)

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
        except BaseException:
            self.recorder.fail("trial")

    def begin_update(
        self, journal: Journal, optimizer: Any, args: Any, kwargs: Any
    ) -> tuple[Any, Any] | None:
        """Prepare an optimizer's step; return the arguments to call it with instead, or None."""
        if journal.scaler is not None:
            self.facts.see_scaler(journal.scaler)
        self.steps_now = True
        self.facts.gradients.begin_update(self.registry.optimizers.alive())
        return super().begin_update(journal, optimizer, args, kwargs)

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
            if self.is_due:
                journal.disturb()
                if self.num_stepped == FACTS_AT and self.facts.is_open:
                    self.described = None
                self.tell_facts()
            if self.live is not None:
                self.live.end_update(self.num_updates, optimizer)
        except NotUndoneError as error:
            self.fail(error.wanted, error.__cause__ or error)
        except BaseException:
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
        doings = self.facts.doings(self.num_updates)
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
        text = super().poll(bucket, is_last=is_last)
        if is_last and self.num_updates:
            self.tell_facts()
            text += self.recorder.lines.pop()
        return text

    def reset(self) -> None:
        """Write in the file of a forked child that it has its parent's levers on."""
        self.samples.reset()
        self.num_stepped = 0
        self.described = None
        if self.live is not None:
            self.live.reset()
        super().reset()


def install_trial(context: TorchContext, plan: TrialPlan, finish: Callable[[], None]) -> LeverGuest:
    """Do what the plan says; `finish` writes the last lines of this process."""
    if plan.is_recipe:
        guest = LeverGuest(context, plan)
        join(context, guest)
        guest.put_on()
        return guest
    trial = TrialGuest(context, plan, finish)
    join(context, trial)
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
        WorkerSearch(context.torch, context.recorder.run, plan.worker_search_s).hook()
    trial.put_on()
    return trial


def join(context: TorchContext, guest: LeverGuest) -> None:
    """Let the hooks and the recorder call the guest."""
    context.trial = context.recorder.follower = guest
    context.recorder.watchers.append(guest)
