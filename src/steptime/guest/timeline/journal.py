"""What the hooks note between the user's kernels: which marker and when, and nothing else.

Our code runs there with cold caches, and each line of bookkeeping costs ten times what it costs in
a loop. So a marker adds three numbers to a list, and the list is replayed through the thread's
`ThreadTimeline`, many updates at a time. Where something must act at once (device events, DDP's
data), the journal is direct: it replays at each marker.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import perf_counter_ns, process_time_ns, thread_time_ns
from typing import TYPE_CHECKING, Any

from ...record.buckets import (
    BATCHES,
    COPIES,
    FORWARD,
    GC_PAUSES,
    INPUT_ROWS,
    OPTIMIZER,
    OTHER,
    SIZES,
    SYNCS,
)
from ...record.places import BY_HAND
from .acts import (
    ACTS,
    DISTURB,
    DROP_OPTIMIZERS,
    END_BY_HAND,
    ENDS,
    ENTER_OPTIMIZER,
    ENTER_OPTIMIZER_WITH_CLOSURE,
    LEAVE_EMPTY_STEP,
    LEAVE_INNER_OPTIMIZER,
    LEAVE_OPTIMIZER,
    SKIP_UPDATE,
    SPANS,
)
from .call_sizes import LARGEST, NODES, TRAINED, sums_of
from .gc_pauses import NONE
from .kept_beside import NO_MAKERS, AskedUpdates, CountedUpdates, Makers, WalkedWindows, WatchRests
from .recorder import FLUSH_NS, MAX_PENDING, Recorder
from .rollout_time import ActingCalls
from .thread_timeline import NEVER, ThreadTimeline
from .watch_budget import is_sampled_at

if TYPE_CHECKING:
    from ..count.operators.operator_probe import OperatorProbe

INPUT_SIZES_END = INPUT_ROWS + len(SIZES)

INTERRUPTED_NS = 50_000
"""Noting a marker takes a few microseconds; where it seems to take longer, the thread had lost its
core."""


class Journal:
    """The notes of one thread.

    `top` is the bucket that is open now; it is `OTHER` between markers, and inside a step's
    closure, where the calls of the user's models must be seen. `is_attentive` says that something
    is done at each marker: frames are walked, or the journal is direct.
    """

    __slots__ = (
        "__weakref__",
        "acting",
        "asked",
        "batches",
        "clock",
        "copies",
        "cpu_clock",
        "due_ns",
        "ends",
        "evaluated",
        "has_backward",
        "has_stepped",
        "in_backward",
        "in_tensor_call",
        "inner_steps",
        "is_attentive",
        "is_direct",
        "is_sampled",
        "last_optimizer",
        "last_shapes",
        "log",
        "losses",
        "make",
        "nodes_before",
        "num_at_rest",
        "num_empty",
        "num_evaluations",
        "num_nodes",
        "num_rested",
        "num_sampled",
        "num_spans",
        "num_updates",
        "optimizers",
        "plan",
        "probe",
        "recorder",
        "resting",
        "samples_all",
        "scaler",
        "self_ns",
        "shapes",
        "sizes",
        "spans",
        "syncs",
        "timeline",
        "top",
        "windows",
        "wrappers",
    )

    def __init__(
        self,
        recorder: Recorder,
        *,
        makers: Makers = NO_MAKERS,
        clock: Callable[[], int] = perf_counter_ns,
        cpu_clock: Callable[[], int] = process_time_ns,
    ) -> None:
        self.recorder = recorder
        self.make = makers
        self.clock = clock
        self.cpu_clock = cpu_clock
        self.timeline = ThreadTimeline(recorder)
        self.reset()

    def reset(self) -> None:
        """Forget everything: this is a new thread, or a child after a fork."""
        self.timeline.reset(self.clock(), self.cpu_clock())
        self.log: list[int] = []
        self.ends: list[tuple[Any, ...]] = []
        self.top = OTHER
        self.optimizers: list[int] = []  # the bucket that was open around each open optimizer step
        self.batches = self.copies = self.syncs = 0
        self.due_ns = self.clock() + FLUSH_NS
        self.in_backward = self.in_tensor_call = False
        self.is_direct = self.is_attentive = False
        self.has_backward = self.has_stepped = False
        self.is_sampled, self.samples_all = True, False
        self.num_sampled = self.num_updates = self.num_rested = self.self_ns = 0
        self.inner_steps = self.num_empty = self.num_spans = 0
        self.evaluated: Any = None  # a reference to the optimizer whose step evaluates a closure
        self.num_evaluations = 0  # in the open step
        self.wrappers: set[int] = set()  # optimizers that step another one inside their own step
        self.scaler: Any = None
        self.windows: WalkedWindows | None = None
        self.probe: OperatorProbe | None = None
        self.plan: CountedUpdates | None = None
        self.asked: AskedUpdates | None = None
        self.resting: WatchRests | None = None
        self.losses = self.make.losses()
        self.shapes: list[Any] = []  # of the update's calls (`call_sizes.py`)
        self.num_nodes = 0  # that this thread had made in graphs as its last backward call began
        self.nodes_before = 0  # the same, at the end of the last update
        self.last_shapes: list[Any] | None = None
        self.last_optimizer = BY_HAND
        self.num_at_rest = 0  # updates that the plan need not see, if they are like the last one
        self.sizes = [0] * len(SIZES)  # of the last update; alike ones share a list
        self.acting = ActingCalls()
        self.spans = self.make.spans()
        self.timeline.spans = self.spans

    def mute(self) -> None:
        """Note nothing any more: the guest has left, and somebody holds a wrapper of ours.

        A module that was compiled meanwhile does. Inside a marker, wrappers call the original at
        once, so that dynamo sees none of our frames.
        """
        self.reset()
        self.top = FORWARD
        self.has_stepped = True  # so that no backward call ends an update
        self.is_sampled = False
        self.losses, self.make = None, NO_MAKERS
        self.due_ns = 0  # what is noted is dropped with the next note

    # -- noting

    def note(self, act: int, top: int) -> None:
        """Note that `act` happens now and that `top` is open from here on."""
        now = self.clock()
        if now > self.due_ns:
            self.flush()
            began, now = now, self.clock()  # the time for writing belongs to what was open before
            if self.windows is not None:
                self.windows.shift += now - began
        self.top = top
        if self.is_sampled:
            self.log += (act, now, self.cpu_clock())
            self.self_ns += min(self.clock() - now, INTERRUPTED_NS)
        else:
            self.log += (act, now, 0)
        if self.is_attentive:
            self._attend(act, now)

    def note_with_cpu(self, act: int, top: int) -> None:
        """Note a span: as `note`, but always with the CPU time."""
        if not self.due_ns:
            self.flush()
        self.top = top
        now = self.clock()
        self.num_spans += 1
        self.log += (act, now, self.cpu_clock())
        if self.spans is not None and act in SPANS:
            self.spans.walk(SPANS[act], sys._getframe(1))
        if self.is_attentive:
            self._attend(act, now)

    def _attend(self, act: int, now: int) -> None:
        """Do what is due at a marker inside a window of walked frames, or where we are direct."""
        if self.windows is not None:
            self.windows.mark(ACTS[act] if act < LEAVE_OPTIMIZER else ENDS[act], now)
        if self.is_direct:
            self.replay()

    def be_direct(self) -> None:
        """Replay at each marker from now on."""
        self.is_direct = self.is_attentive = True

    def disturb(self) -> None:
        """Mark this update as longer than it would be: we examine it more closely."""
        self.log += (DISTURB, self.clock(), 0)

    def enter_optimizer(self, *, has_closure: bool) -> None:
        """Note the beginning of an optimizer's step; calls inside its closure are seen as usual."""
        self.has_stepped = True
        self.optimizers.append(self.top)
        self.evaluated = None
        self.num_evaluations = 0
        if has_closure:
            self.note(ENTER_OPTIMIZER_WITH_CLOSURE, OTHER)
        else:
            self.note(ENTER_OPTIMIZER, OPTIMIZER)

    def leave_optimizer(self, optimizer: Any, skipped: int | None) -> None:
        """Note the end of an optimizer's step; the outermost one ends the update.

        A wrapper that is known to step another optimizer, but did not this time, made no update.
        """
        if not self.optimizers:
            return  # the step began before the hooks were in place
        top = self.optimizers.pop()
        if self.optimizers:
            self.inner_steps += 1
            self.note(LEAVE_INNER_OPTIMIZER, top)
            return
        number = self.recorder.index_of(optimizer)
        if self.num_evaluations:
            self.recorder.num_evaluations += self.num_evaluations
            self.recorder.num_evaluated_steps += 1
        if self.inner_steps:
            self.inner_steps = 0
            self.wrappers.add(number)
        elif number in self.wrappers:
            self.num_empty += 1
            self.note(LEAVE_EMPTY_STEP, top)
            return
        self._end_update(LEAVE_OPTIMIZER, top, number, skipped)

    def skip_update(self, optimizer: Any) -> None:
        """Note an update that a gradient scaler skipped because it found infinities."""
        if self.recorder.is_closed:
            return
        if not self.due_ns:
            self.flush()
        self.has_stepped = True
        self._end_update(SKIP_UPDATE, self.top, self.recorder.index_of(optimizer), 1)

    def end_by_hand(self) -> None:
        """Note that a backward call ended an update: no optimizer has stepped yet."""
        self._end_update(END_BY_HAND, self.top, BY_HAND, 0)

    def end_evaluation(self) -> None:
        """Count an evaluation of a closure: it is part of the optimizer's step."""
        self.num_evaluations += 1

    def _end_update(self, act: int, top: int, optimizer: int, skipped: int | None) -> None:
        if not self.num_updates:
            self._begin()
        pauses = self.recorder.pauses
        taken = pauses.take() if pauses.is_due else NONE
        follower = self.recorder.follower
        tag = None if follower is None else follower.tag()
        sizes, shapes = self.sizes, self.shapes
        is_alike = optimizer == self.last_optimizer
        num_nodes, self.nodes_before = self.num_nodes - self.nodes_before, self.num_nodes
        if shapes != self.last_shapes or num_nodes != sizes[NODES]:
            sizes = self.sizes = sums_of(shapes, num_nodes, sizes[TRAINED])
            self.acting.trained = sizes[LARGEST] or self.acting.trained
            is_alike = False
        seen = self.batches, self.copies, self.syncs
        self.batches = self.copies = self.syncs = 0
        self.last_shapes, self.shapes, self.last_optimizer = shapes, [], optimizer
        self.num_sampled += self.is_sampled
        self.num_updates += 1
        self.top = top
        now, cpu = self.clock(), self.cpu_clock()
        self.log += (act, now, cpu)  # without a call between them, no interrupt separates these two
        self.ends += ((optimizer, skipped, seen, sizes, taken, tag),)
        if self.is_attentive:
            self._attend(act, now)
        self.is_sampled = self.samples_all or is_sampled_at(self.num_updates)
        if self.windows is not None:
            self.windows.end_update(self, is_by_hand=act == END_BY_HAND)
        if is_alike and self.num_at_rest:
            self.num_at_rest -= 1
        elif self.plan is not None:
            self.plan.end_update(self, optimizer, sizes)
        if self.losses is not None:
            self.losses.end_update(optimizer, skipped)
        if self.asked is not None:
            self.asked.end_update(self, optimizer)
        if self.due_ns == NEVER:
            self.due_ns = self.clock() + FLUSH_NS
        elif len(self.ends) >= MAX_PENDING:
            self.flush()
        if follower is not None:
            follower.end_update(self, optimizer)
        if self.resting is not None:
            self.resting.end_update(optimizer)

    def _begin(self) -> None:
        """Take part from the first update on; the first thread is looked at most closely."""
        self.recorder.journals.append(self)
        self.recorder.enroll(self.timeline)  # in order of first updates, not of first replays
        self.due_ns = NEVER
        if len(self.recorder.journals) > 1:
            self.losses = None
            return
        self.windows, self.plan = self.make.windows(), self.make.plan()
        self.resting = self.make.resting(self)

    def set_trained(self, trained: int) -> list[int]:
        """Note the weights that need gradients, and return the sizes of the update that ended."""
        if trained != self.sizes[TRAINED]:
            self.sizes = sizes = [*self.sizes]
            sizes[TRAINED] = trained
            if self.ends:
                optimizer, skipped, seen, _, *rest = self.ends[-1]
                self.ends[-1] = (optimizer, skipped, seen, sizes, *rest)
        return self.sizes

    def drop_optimizers(self) -> None:
        """Close the steps that seem open: an exception left them."""
        self.optimizers.clear()
        self.inner_steps = 0
        self.note(DROP_OPTIMIZERS, OTHER)

    # -- replaying

    def replay(self) -> None:
        """Run the notes through the timeline."""
        log, self.log = self.log, []
        ends, self.ends = self.ends, []
        timeline, following = self.timeline, iter(ends)
        try:
            numbers = iter(log)
            for act, timeline.now, timeline.cpu_now in zip(numbers, numbers, numbers, strict=True):
                if act < LEAVE_OPTIMIZER:
                    ACTS[act](timeline)
                    continue
                optimizer, skipped, seen, sizes, pauses, tag = next(following)
                self._count(*seen)
                timeline.wall[INPUT_ROWS:INPUT_SIZES_END] = sizes
                if tag is not None:
                    timeline.tag = tag
                if pauses is not NONE:
                    for place, number in enumerate(pauses, GC_PAUSES):
                        timeline.wall[place] += number
                if act == LEAVE_OPTIMIZER:
                    timeline.leave_optimizer(optimizer, skipped)
                elif act == SKIP_UPDATE:
                    timeline.skip_update(optimizer)
                else:
                    timeline.end_by_hand()
        except BaseException:
            self.recorder.fail("replay")
            timeline.reset(self.clock(), self.cpu_clock())
        self._count(self.batches, self.copies, self.syncs)
        self.batches = self.copies = self.syncs = 0

    def _count(self, batches: int, copies: int, syncs: int) -> None:
        wall = self.timeline.wall
        wall[BATCHES] += batches
        wall[COPIES] += copies
        wall[SYNCS] += syncs

    def flush(self) -> None:
        """Replay, and let the recorder write the result; a rest is over."""
        if self.resting is not None and self.resting.is_resting:
            self.resting.wake()
            return
        if self.recorder.is_closed:
            self.log.clear()
            return
        if not self.num_updates:  # a long time without an update: the notes must not pile up
            self.due_ns = self.clock() + FLUSH_NS
            self.replay()
            return
        began = thread_time_ns()
        self.due_ns = NEVER
        self.replay()
        self.recorder.flush_ns += thread_time_ns() - began
        self.recorder.flush(self.top)
