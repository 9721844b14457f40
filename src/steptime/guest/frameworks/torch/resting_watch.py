"""Lets the watch of a thread rest between bursts of updates, where it would cost too much.

While it rests, the hooks of each step are out of torch: one small hook notes when an update of an
optimizer ends, so that steps are counted and timed, and their phases are not. Whatever else the
guest sees ends the rest: an epoch that starts workers, a checkpoint, an evaluation, a step of an
environment, a compilation. The times go into the record as lines of their own, `kinds.RESTED`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import cycle
from time import perf_counter_ns, process_time_ns, thread_time_ns
from typing import Any

from ....record.buckets import EVALUATION, OTHER
from ....record.places import BY_HAND
from ...hooks.patching import Away, pass_as_torchs
from ...timeline.acts import ENTER_EVALUATION, LEAVE_EVALUATION
from ...timeline.journal import Journal
from ...timeline.recorder import FLUSH_NS
from ...timeline.watch_budget import BURST, END_NS, SAMPLED_AT_FIRST, WatchBudget
from ...watchers.kinship import is_initialized
from .tensor_hooks import COPYING, READS
from .torch_context import TorchContext

MAX_TURNS = 16
"""Updates of which the last half must repeat the first, where several optimizers take turns."""

MAX_SHORT = 16
"""After so many rests in a row that something ended at once, the watch does not rest any more."""

POLL_NS = 1_000_000_000
"""While it rests, the watchers are polled once a second: that takes a third of a millisecond."""

LOOK = "steptime"
"""The key of our look among torch's hooks of all modules, while gradients are off."""


class RestingWatch:
    """The bursts and rests of one thread.

    Args:
        context: of this process.
        journal: of the thread.
        clock: [ns].
    """

    def __init__(
        self, context: TorchContext, journal: Journal, clock: Callable[[], int] = perf_counter_ns
    ) -> None:
        self.context = context
        self.journal = journal
        self.clock = clock
        self.budget = WatchBudget()
        self.zero_ns = clock()
        self.turns: list[int] = []  # the optimizers of the last updates
        self.burst = self.left = SAMPLED_AT_FIRST  # updates of the burst, and those still to come
        self.burst_ns = self.flush_ns = 0  # when the burst began, and what was written till then
        self.num_watched = self.watched_flush_ns = 0  # in bursts, without the first
        self.is_over = self.is_resting = False
        self.num_short = 0
        self.pattern: Sequence[int] = ()
        self.ends: list[int] = []  # of the updates since the last line, while it rests
        self.num_rested = 0  # updates of this rest that are written
        self.last_ns = self.last_cpu_ns = self.wake_ns = self.switch_ns = self.poll_due_ns = 0
        self.due = [0]  # when the next line is, or the end of the rest
        self.away = Away(hooks_of_a_step(context.torch))
        self.look = LookWithoutGradients(context, self)

    # -- while it watches

    def end_update(self, optimizer: int) -> None:
        """Take the end of a watched update; perhaps the watch rests from here on."""
        if self.is_over:
            if self.journal.samples_all:
                self.journal.replay()  # with the CPU times that are noted
                self.journal.samples_all = self.journal.timeline.samples_all = False
            return
        self.turns.append(optimizer)
        self.left -= 1
        if self.left > 0:
            return
        del self.turns[:-MAX_TURNS]
        period = period_of(self.turns)
        if self._see_burst() and period and self._may_rest():
            burst, rest_ns = self.budget.plan(self.clock() - self.zero_ns)
            if rest_ns:
                self._begin(self.turns[-period:], rest_ns)
                self.burst = burst
                return
        self._begin_burst(BURST)

    def _begin_burst(self, num: int) -> None:
        self.burst = self.left = num
        self.burst_ns, self.flush_ns = self.clock(), self.context.recorder.flush_ns

    def _see_burst(self) -> bool:
        """Take what watching cost in the burst that ended; return whether that is known by now."""
        if not self.burst_ns:
            return False  # the first updates are looked at more closely than all others
        recorder, journal = self.context.recorder, self.journal
        self.num_watched += self.burst
        self.watched_flush_ns += recorder.flush_ns - self.flush_ns
        self.budget.see_cost(
            marker_ns=journal.self_ns / max(1, journal.num_sampled),
            nested_ns=recorder.nested_per_update * recorder.nested_ns,
            flush_ns=self.watched_flush_ns / self.num_watched,
        )
        if not self.budget.is_timed:
            self.budget.step_ns = (self.clock() - self.burst_ns) / self.burst
        return self.num_watched >= SAMPLED_AT_FIRST

    def _may_rest(self) -> bool:
        """Return whether nothing is under way that needs the markers of the next updates."""
        context, journal = self.context, self.journal
        windows, plan, anatomy = journal.windows, journal.plan, context.anatomy
        if context.has_compiled or context.before_update is not None or journal.wrappers:
            self.is_over = True  # dynamo knows our wrappers; the ranks of DDP are compared
        return not (
            self.is_over
            or len(context.recorder.journals) > 1
            or BY_HAND in self.turns
            or journal.optimizers
            or journal.evaluated is not None
            or journal.asked is not None
            or journal.probe is not None
            or context.layers is not None
            or (windows is not None and not windows.is_idle)
            or (plan is not None and not plan.is_idle)
            or (anatomy is not None and not anatomy.is_idle)
            or (journal.losses is not None and not journal.losses.is_idle)
            or is_initialized(context.torch)
        )

    # -- while it rests

    def _begin(self, turns: Sequence[int], rest_ns: int) -> None:
        """Take the hooks of a step away; `turns` are the optimizers that step from now on."""
        began = thread_time_ns()
        journal, recorder = self.journal, self.context.recorder
        journal.replay()
        recorder.end_block(journal.timeline)
        self.pattern, self.num_rested = turns, 0
        self.last_ns, self.last_cpu_ns = journal.timeline.last, journal.timeline.last_cpu
        self.wake_ns = self.last_ns + rest_ns
        self.due[0] = min(self.last_ns + FLUSH_NS, self.wake_ns)
        self.ends.clear()
        self.is_resting = True
        journal.due_ns = 0  # whatever is noted next ends the rest
        journal.is_sampled = False
        self.away.begin()
        self.context.fetchers.begin()
        known = dict(recorder.optimizers.values())
        replace_step_hooks(self.context, None, self._make_hook([id(known[n]()) for n in turns]))
        self.look.begin()
        self.switch_ns = thread_time_ns() - began

    def _make_hook(self, keys: list[int]) -> Callable[[Any, Any, Any], None]:
        """Return what torch calls at the end of each step; each line counts, with cold caches."""
        clock, take, attend = self.clock, self.ends.append, self._attend
        see, journal, ends = self.context.sense.end_rested, self.journal, self.ends
        due, fail, following = self.due, self.context.recorder.fail, cycle(keys)
        key, *others = keys

        def ended(optimizer: Any, args: Any, kwargs: Any) -> None:
            try:
                now = clock()
                take(now)
                see(optimizer, journal.num_updates + self.num_rested + len(ends))
                if others:
                    is_expected = id(optimizer) == next(following)
                else:
                    is_expected = id(optimizer) == key
                if now > due[0] or not is_expected:
                    attend(now, optimizer, is_expected=is_expected)
            except BaseException:
                fail("rest")

        return ended

    def _attend(self, now: int, optimizer: Any, *, is_expected: bool) -> None:
        """Write what is due at the end of an update, or end the rest."""
        if not is_expected:
            self.ends.pop()
            self.wake()
            self.journal.enter_optimizer(has_closure=False)
            self.journal.leave_optimizer(optimizer, 0)
            return
        num = self.num_rested + len(self.ends)
        if now >= self.wake_ns and not num % len(self.pattern):
            self.wake(self.burst)
            return
        self.due[0] = min(now + FLUSH_NS, max(now, self.wake_ns))
        self._write()
        if polls := now >= self.poll_due_ns:
            self.poll_due_ns = now + POLL_NS
        self.context.recorder.flush(polls=polls)
        if self.journal.asked is not None:
            self.wake()

    @property
    def num_unwritten(self) -> int:
        """Return how many updates ended in this rest that the journal does not count yet."""
        return self.num_rested + len(self.ends) if self.is_resting else 0

    def wake(self, num: int | None = None) -> None:
        """End the rest.

        Args:
            num: updates of the burst that begins; None where something else than the time ended
                the rest, and the burst is as long as the rest has earned.
        """
        if not self.is_resting:
            return
        began = thread_time_ns()
        self.put_back()
        self._write()
        rested = self.num_rested
        self._resume(rested)
        self.num_short = self.num_short + 1 if rested < BURST else 0
        self.is_over = self.num_short > MAX_SHORT
        if num is None:
            share = self.budget.share
            num = max(1, min(self.burst, round(rested * share / max(1e-9, 1 - share))))
        self._begin_burst(num)
        self.budget.switch_ns = self.switch_ns + thread_time_ns() - began
        self.context.recorder.rest_ns += self.budget.switch_ns

    def _resume(self, num: int) -> None:
        """Let the journal go on after so many updates."""
        journal = self.journal
        journal.num_updates += num
        journal.num_rested += num
        journal.is_sampled = journal.samples_all = True
        journal.batches = journal.copies = journal.syncs = 0
        journal.shapes = []
        journal.nodes_before = journal.num_nodes = self.context.num_nodes()
        journal.due_ns = self.clock() + FLUSH_NS
        journal.timeline.resume(num, self.last_ns, process_time_ns())
        for beside in (journal.windows, journal.losses, self.context.anatomy):
            if beside is not None:
                beside.skip(num)
        if journal.plan is not None:
            journal.plan.skip(journal, num)
        journal.disturb()

    def put_back(self) -> None:
        """Put the hooks of a step back."""
        self.is_resting = False
        self.look.end()
        replace_step_hooks(self.context, *self.context.optimizer_hooks)
        self.away.end()
        self.context.fetchers.end()

    def _write(self) -> None:
        """Hand over the updates since the last line."""
        if not self.ends:
            return
        ends, num = self.ends[:], len(self.ends)
        del self.ends[:num]
        cpu_ns = process_time_ns()
        self.budget.see_times(self.last_ns, ends)
        begin = self.num_rested % len(self.pattern)
        pattern = [*self.pattern[begin:], *self.pattern[:begin]]
        self.context.recorder.add_rested(
            self.journal.timeline, pattern, self.last_ns, ends, cpu_ns - self.last_cpu_ns
        )
        self.num_rested += num
        self.context.recorder.rest_ns += num * END_NS
        self.last_ns, self.last_cpu_ns = ends[-1], cpu_ns


class LookWithoutGradients:
    """Ends a rest where an evaluation begins: a trained model in eval mode, without gradients.

    Torch itself computes without gradients in many steps (clipping does), so the models that are
    called meanwhile tell. Their class has no wrapper of ours now; torch asks its own hooks.
    """

    def __init__(self, context: TorchContext, watch: RestingWatch) -> None:
        torch = context.torch
        self.context = context
        self.watch = watch
        self.hooks: dict[Any, Any] = torch.nn.modules.module._global_forward_pre_hooks
        modes = torch.autograd.grad_mode
        self.owners = (modes.no_grad, modes.inference_mode, modes.set_grad_enabled)
        self.before: list[tuple[Any, Any, Any]] = []

    def begin(self) -> None:
        """Look at the first model that is called in each stretch without gradients."""
        for owner in self.owners:
            enter, leave = owner.__enter__, owner.__exit__
            self.before.append((owner, enter, leave))
            owner.__enter__, owner.__exit__ = self._around(enter, leave)

    def end(self) -> None:
        """Look at nothing more."""
        while self.before:
            owner, enter, leave = self.before.pop()
            owner.__enter__, owner.__exit__ = enter, leave
        self.hooks.pop(LOOK, None)

    def _around(self, enter: Any, leave: Any) -> tuple[Any, Any]:
        hooks, see, is_grad_enabled = self.hooks, self.see, self.context.is_grad_enabled

        def __enter__(self: Any) -> Any:
            result = enter(self)
            if not is_grad_enabled():
                hooks[LOOK] = see
            return result

        def __exit__(self: Any, *error: Any) -> Any:
            hooks.pop(LOOK, None)
            return leave(self, *error)

        pass_as_torchs(self.context.torch, __enter__, __exit__)
        return __enter__, __exit__

    def see(self, module: Any, args: Any) -> None:
        """Look at a module that is called."""
        context, watch = self.context, self.watch
        try:
            self.hooks.pop(LOOK, None)
            journal = context.local.journal
            if journal is not watch.journal or journal.acting.acts_only_in_eval:
                return
            if not module.training and id(module) in context.trained:
                watch.wake()
                journal.note_with_cpu(ENTER_EVALUATION, EVALUATION)
                journal.note_with_cpu(LEAVE_EVALUATION, OTHER)
        except BaseException:
            context.recorder.fail("rest")


def hooks_of_a_step(torch: Any) -> list[tuple[Any, str]]:
    """Return what each step calls and our hooks replace, by owner and name."""
    tensor, clipping = torch.Tensor, torch.nn.utils
    iterator = torch.utils.data.dataloader._BaseDataLoaderIter
    found = [(torch.optim.lr_scheduler.LRScheduler, "step")]
    found += [(torch.nn.Module, "__call__"), (iterator, "__next__"), (torch.autograd, "grad")]
    found += [(owner, "backward") for owner in (tensor, torch.autograd)]
    found += [(tensor, name) for name in (*READS, *COPYING)]
    found += [(torch.amp.GradScaler, name) for name in ("scale", "unscale_")]
    found += [(torch.cuda, "synchronize"), (getattr(torch, "accelerator", None), "synchronize")]
    for name in ("clip_grad_norm_", "clip_grad_value_"):
        found += [(clipping, name), (clipping.clip_grad, name)]
    return found


def replace_step_hooks(context: TorchContext, before: Any, after: Any) -> None:
    """Let torch call these around each step of an optimizer, in the places that ours have."""
    import torch.optim.optimizer as optimizers

    registries = (optimizers._global_optimizer_pre_hooks, optimizers._global_optimizer_post_hooks)
    for registry, key, hook in zip(registries, context.optimizer_keys, (before, after)):
        if hook is None:
            registry.pop(key, None)
        else:
            registry[key] = hook


def period_of(turns: Sequence[int]) -> int:
    """Return after how many updates the optimizers repeat in the same order; 0 if they do not."""
    for period in range(1, len(turns) // 2 + 1):
        if turns[period:] == turns[:-period]:
            return period
    return 0
