"""What all hooks of torch share, and the wrapper that most of them use."""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from ....record import kinds
from ....record.buckets import EVALUATION
from ...again.repeats import watch_repeats
from ...count.count_plan import CountPlan, CountWatcher
from ...count.operators.operator_probe import OperatorProbe
from ...count.sizes import shape_reader
from ...health.evaluation_losses import EvaluationLosses
from ...health.graph_marks import GraphMarks
from ...health.loss_watch import LossWatch
from ...health.weight_check import WeightCheck
from ...hooks.callers_place import from_callers_place
from ...hooks.context import Context
from ...hooks.module_tree import has_parameters
from ...hooks.patching import OnObjects, drop_frame, without_dynamo
from ...longest.epoch_watch import EpochWatch
from ...memory.holdings import tensors_within
from ...memory.memory_probe import MemoryProbe
from ...memory.storages import frame_next_step
from ...modes.mode import GuestMode
from ...padding.batch_watch import BatchWatch
from ...sense.sense_watch import SenseWatch
from ...sites.cells import CellTeller
from ...sites.file_owners import FileOwners
from ...sites.frames import Frames
from ...sites.site_book import SpanSites
from ...sites.site_windows import SiteWatcher, SiteWindows
from ...timeline.acts import LEAVE, LEAVE_SPAN
from ...timeline.journal import Journal
from ...timeline.kept_beside import CountedUpdates, Makers, WatchRests
from ...timeline.recorder import Recorder, announce
from ...timeline.thread_journals import Journals, inside_backward
from ...timeline.thread_timeline import ThreadTimeline
from ...watchers.call_record import make_call_record
from ...watchers.checkpoints import CheckpointWatcher
from ...watchers.debug_switches import SwitchWatcher
from ...watchers.inputs import LoaderBook

if TYPE_CHECKING:
    from ...health.layer_look import LayerLook
    from ...profile.profile_window import ProfileWindow


DISTURBING_NS = 100_000
"""What takes longer than all markers of a step together shows in its time."""


class TorchContext(Context):
    """What all hooks of torch share: torch, what is known of the models, and what looks at them."""

    def __init__(
        self, torch: Any, recorder: Recorder, mode: GuestMode, *, is_late: bool = False
    ) -> None:
        self.torch = torch
        self.frames = Frames(FileOwners(torch))
        super().__init__(recorder, mode, self._make_journals(recorder), is_late=is_late)
        self.is_grad_enabled = torch.is_grad_enabled
        self.loss_class = torch.nn.modules.loss._Loss
        self.graph_class = torch.fx.GraphModule
        self.switches = SwitchWatcher(torch, recorder)
        self.kinds: dict[int, tuple[Any, int, bool]] = {}
        self.trained: set[int] = set()
        self.trained_datasets: set[int] = set()
        self.dataset: int | None = None
        self.inputs = LoaderBook(recorder, self.trained_datasets)
        self.ddp_models: weakref.WeakSet[Any] = weakref.WeakSet()
        self.exchanges = False  # FSDP2 does so in the next backward call, where the script decides
        self.search: Any = None  # `guest/said/search_watcher.py`, where DDP is there
        self.checksums: Any = None  # set in a run with --checksums
        self.see_loss: Callable[[Any], None] = lambda _: None
        self.step_code: Any = None  # code of torch's frame around an optimizer's step and its hooks
        self.optimizer_hooks: tuple[Any, ...] = ()
        self.optimizer_keys: tuple[int, ...] = ()  # theirs, among torch's hooks
        self.has_compiled = False
        self.fetchers = OnObjects()  # of loaders without workers
        self.new_resting: Callable[[Journal], WatchRests] | None = None
        self.new_profile: Callable[[], ProfileWindow] | None = None  # set in a run with --profile
        self.before_update: Callable[[ThreadTimeline], None] | None = None
        self.anatomy: MemoryProbe | None = None  # None once everything about the memory was seen
        self.autopsy: MemoryProbe | None = None  # the same, kept to the end
        self.checkpoints = CheckpointWatcher(recorder)
        self.num_nodes: Callable[[], int] = getattr(torch.autograd, "_get_sequence_nr", lambda: 0)
        self.lent_probe: OperatorProbe | None = None  # for threads that only call models
        self.padding = BatchWatch(torch, recorder)
        self.epochs = EpochWatch(torch, recorder, self.trained_datasets)
        self.see_shape = shape_reader(torch, recorder.fail, self.padding)
        self.graphs = GraphMarks(torch, recorder)
        self.weights = WeightCheck(torch, self.find_models)
        self.evaluations = EvaluationLosses(torch, recorder)
        self.sense = SenseWatch(torch, recorder, self.frames, self.trained_datasets)
        self.layers: LayerLook | None = None  # while layers are looked at
        self.look: LayerLook | None = None  # the same, also while it is off
        self.cells = CellTeller(self.frames.places, self._tell_cells)
        self.calls = make_call_record(torch, recorder.run, self.frames.places)

        recorder.watchers += [SiteWatcher(recorder), CountWatcher(recorder), self.cells]
        recorder.watchers += [self.graphs, self.weights, self.evaluations]
        recorder.watchers.append(self.sense)
        self.repeats = watch_repeats(self)
        self.see_graph = without_dynamo(torch, self._see_graph)
        self.check_weights = without_dynamo(torch, self._check_weights)
        self.dissect = without_dynamo(torch, self._dissect)
        self.see_kept = without_dynamo(torch, self._see_kept)

    def _make_journals(self, recorder: Recorder) -> Journals:
        """Return what gives each thread its journal."""
        torch, frames = self.torch, self.frames
        self.is_inside_backward = inside_backward(torch._C)
        makers = Makers(
            spans=lambda: SpanSites(frames),
            windows=self.new_windows,
            plan=lambda: self.mode.new_plan(self),
            losses=lambda: LossWatch(torch, recorder, frames, self._find_names),
            resting=self._make_resting,
        )
        new_journal = functools.partial(Journal, recorder, makers=makers)
        return Journals(new_journal, self.is_inside_backward)

    def new_windows(self) -> SiteWindows | None:
        """Return what walks frames in the thread that steps first, if anything may."""
        if not self.mode.walks_frames:
            return None
        profile = None if self.new_profile is None else self.new_profile()
        return SiteWindows(self.frames, perf_counter_ns, profile=profile)

    def _make_resting(self, journal: Journal) -> WatchRests | None:
        """Return what lets the watch rest in the thread that steps first, if it may."""
        if self.new_resting is None or not self.mode.may_rest:
            return None
        return self.new_resting(journal)

    def plan_counts(self, *, is_once: bool) -> CountedUpdates:
        """Return what decides which updates of that thread are counted."""
        return CountPlan(
            self.torch,
            self.recorder,
            self.lend,
            is_once=is_once,
            shield=functools.partial(without_dynamo, self.torch),
        )

    def _tell_cells(self, cells: list[list[Any]]) -> None:
        announce(self.recorder.run, kinds.CELLS, {"cells": cells})

    def find_models(self) -> list[Any]:
        """Return the models that were called with gradients and are still there."""
        known = [known[0]() for known in list(self.kinds.values())]
        return [m for m in known if m is not None and has_parameters(m)]

    def _find_names(self) -> dict[int, str]:
        """Return the names of the weights of all models, by id."""
        return self.weights.find_names()

    def _see_graph(self, journal: Journal, args: Any) -> None:
        """Mark the graph of a backward call that begins, or see which marks are alive."""
        if journal is self.first_journal:
            began = perf_counter_ns()
            self.graphs.see(args, journal.num_updates)
            self._disturb_since(journal, began)

    def _check_weights(self, journal: Journal, optimizer: Any) -> None:
        """Sample the weights as an optimizer's outermost step begins."""
        if journal is not self.first_journal or len(journal.optimizers) != 1:
            return
        began = perf_counter_ns()
        known = [reference() for _, reference in list(self.recorder.optimizers.values())]
        self.weights.begin_step(optimizer, known, journal.num_updates)
        self._disturb_since(journal, began)

    def _see_kept(self, module: Any, given: Any, result: Any, number: int) -> None:
        """Follow what a model returned in an evaluation."""
        self.sense.kept.see_call(module, given, result, number)

    def see_epoch(self, journal: Journal, iterator: Any, batch: Any) -> None:
        """Look at the epoch of a loader that trains."""
        began = perf_counter_ns()
        self.epochs.see_batch(iterator, batch, journal.num_updates)
        self._disturb_since(journal, began)

    def see_again(self, module: Any, args: Any, kwargs: Any, result: Any, began_ns: int) -> None:
        """Look whether the inputs of a module come again, if the thread is the first that steps."""
        if getattr(module, "training", True) or self.local.journal is not self.first_journal:
            return
        self.repeats.see_call(module, args, kwargs, result, perf_counter_ns() - began_ns)

    @staticmethod
    def _disturb_since(journal: Journal, began_ns: int) -> None:
        """Mark the update as longer, if what we did in it took longer than usual."""
        if perf_counter_ns() - began_ns > DISTURBING_NS:
            journal.disturb()

    def leave_weights(self) -> None:
        """Sample neither graphs nor weights in this process."""
        self.graphs.give_up()
        self.weights.give_up()

    def lend(self, probe: OperatorProbe | None) -> None:
        """Let threads that only call models use the probe of the thread that steps."""
        self.lent_probe = probe

    def choose_probe(self, journal: Journal) -> OperatorProbe | None:
        """Return the probe that a call with gradients runs through: its thread's, or one lent."""
        if journal.probe is not None or self.lent_probe is None:
            return journal.probe
        steps = journal.num_updates or journal.in_backward or journal.has_backward
        return None if steps else self.lent_probe

    def see_plain_call(self, journal: Journal, args: Any, kwargs: Any) -> None:
        """Note the shape of a call without gradients, and that the thread's probe has passed it."""
        self.see_shape(journal, args, kwargs, is_plain=True)
        if journal.probe is not None:
            self.guarded("sizes", journal.probe.pass_plain)

    def _dissect(self, what: str, *args: Any) -> None:
        """Let the memory probe do `what`; the update takes longer because of it."""
        anatomy = self.anatomy
        if anatomy is None or self.is_worker or not anatomy.heeds(what):
            return
        try:
            self.local.journal.disturb()
            with self.torch._C.DisableTorchFunction():  # what we read must not reach anybody's mode
                getattr(anatomy, what)(*args)
        except BaseException:
            self.recorder.fail("anatomy")
            anatomy.give_up(what)

    def follow_step(self, journal: Journal, optimizer: Any) -> None:
        """Follow the storages of an outermost step too, in the update that is followed."""
        probe, step = journal.probe, type(optimizer).step
        if probe is None or probe.storages is None or len(journal.optimizers) > 1:
            return
        local, follow = self.local, probe.follow

        def around(function: Any, args: Any, kwargs: Any) -> Any:
            if local.journal is not journal:
                return function(*args, **kwargs)  # another thread came first
            return follow("optimizer", function, args, kwargs)

        is_plain = all(map(probe.is_plain, tensors_within(self.torch, dict(optimizer.state))))
        if is_plain and getattr(step, "__code__", None) is self.step_code:
            frame_next_step(step, around)

    def end_update(self) -> None:
        """Tell the memory probe that an outermost step ended; drop it when it is done."""
        anatomy = self.anatomy
        if anatomy is None:
            return
        journal = self.local.journal
        what = anatomy.count_update(journal.probe)
        if what is not None:
            self.dissect(what)
        if anatomy.is_over:
            self.anatomy = None


def marked(
    context: TorchContext,
    original: Any,
    bucket: int,
    see: Callable[[Journal, Any], None] | None = None,
) -> Any:
    """Return a wrapper that books the whole call to `bucket`, unless that is open already.

    `see` is given what the call returned.
    """
    is_compiling = context.torch.compiler.is_dynamo_compiling
    local, fail = context.local, context.recorder.fail
    note, leaving = Journal.note, LEAVE
    if bucket >= EVALUATION:
        note, leaving = Journal.note_with_cpu, LEAVE_SPAN

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return original(*args, **kwargs)
        try:
            journal = local.journal
            outer = journal.top
            if outer == bucket:
                return original(*args, **kwargs)
            try:
                note(journal, bucket, bucket)
            except BaseException:
                fail("enter")
            try:
                result = from_callers_place(sys._getframe(1), original, *args, **kwargs)
            finally:
                try:
                    note(journal, leaving, outer)
                except BaseException:
                    fail("leave")
            if see is not None:
                try:
                    see(journal, result)
                except BaseException:
                    fail("see")
            return result
        except BaseException as error:
            drop_frame(error)
            raise

    return wrapper
