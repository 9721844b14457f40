"""One exclusive timeline a thread: each instant belongs to the innermost open marker.

What the hooks noted (journal.py) is replayed through `enter`, `leave` and the few events
below; at the end of an update the sums go to a sink as one list. Some time can be named
only later (what follows the model's call is loss if a backward comes next): it waits in a
pending bucket. No torch here, and no clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ...record.buckets import (
    AFTER_BACKWARD,
    AFTER_FORWARD,
    BACKWARD,
    BACKWARDS,
    CLOSURE_HEAD,
    CLOSURE_TAIL,
    EVALUATED,
    EVALUATION,
    FORWARD,
    FORWARD_AND_LOSS,
    FORWARDS,
    GRADIENT_PROCESSING,
    INNER_STEPS,
    INPUT_WAIT,
    LOSS,
    NUM_BUCKETS,
    NUM_WRITTEN,
    OPTIMIZER,
    OTHER,
    PREPARE_NS,
    SIZE,
    ZEROS,
)
from ...record.places import BY_HAND

SAMPLED_AT_FIRST = 256
SAMPLE_BLOCK = 16
SAMPLE_EVERY = 8
"""CPU time by bucket, fetch and collate apart, and our own time are taken for the first 256
updates of a thread, then for one block of 16 in eight: the process CPU clock is a system
call of 0.6 µs, at ten markers a step. The CPU time of each update as a whole is always taken."""

NEVER = 1 << 62


def is_sampled_at(update: int) -> bool:
    """Whether all is taken in this update of a thread, counted from 0."""
    return update < SAMPLED_AT_FIRST or (update // SAMPLE_BLOCK) % SAMPLE_EVERY == 0


class Sink(Protocol):
    """Where finished updates go."""

    def add(self, timeline: ThreadTimeline, optimizer: Any, skipped: int | None) -> None:
        """Take the sums of a finished update."""


class ThreadTimeline:
    """The markers of one thread.

    `wall` holds exclusive nanoseconds by bucket, then the counts, then the pending time;
    `cpu` the process CPU nanoseconds likewise. `top` is the bucket that time flows into now.
    """

    __slots__ = (
        "closure_depth",
        "cpu",
        "cpu_now",
        "device",
        "events",
        "inner_loss",
        "is_detailed",
        "is_disturbed",
        "is_sampled",
        "last",
        "last_cpu",
        "mark",
        "mark_cpu",
        "mark_other",
        "mark_other_cpu",
        "mark_prepare",
        "now",
        "num_updates",
        "optimizer_depth",
        "prepares",
        "sink",
        "spans",
        "stack",
        "start",
        "started",
        "tag",
        "thread",
        "top",
        "wall",
    )

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.device: Any = None
        self.spans: Any = None  # sorts the time of spans by place
        self.reset(0, 0)

    def reset(self, now: int, cpu_now: int) -> None:
        """Forget everything: a new thread, or a child after fork."""
        self.now = now
        self.cpu_now = cpu_now
        self.thread = -1
        self.num_updates = 0
        self.started = False
        self.is_sampled = self.is_detailed = True
        self.is_disturbed = False  # a look of ours made this update longer
        self.stack: list[int] = []
        self.optimizer_depth = 0
        self.closure_depth = 0
        self.prepares = False  # a batch is there, and no model has been called with it
        self.events: list[int] | None = None
        self.tag: tuple[int, ...] | None = None  # what a trial says of the update that ends
        self.top = OTHER
        self.last = now
        self.last_cpu = cpu_now
        self._open_books()

    def _open_books(self) -> None:
        """A new update begins here."""
        self.start = self.last
        self.wall = [0] * SIZE
        self.cpu = [0] * SIZE
        self.inner_loss = False
        self.mark: Sequence[int] = ZEROS
        self.mark_cpu: Sequence[int] = ZEROS
        self.mark_other = self.mark_other_cpu = self.mark_prepare = 0

    # -- the two moves

    def enter(self, bucket: int) -> None:
        """Open a marker: from now on time belongs to `bucket`."""
        now = self.now
        top = self.top
        self.wall[top] += now - self.last
        self.stack.append(top)
        self.top = bucket
        self.last = now
        if self.is_detailed:
            self._detail(top, now)

    def leave(self) -> None:
        """Close the innermost marker."""
        now = self.now
        top = self.top
        self.wall[top] += now - self.last
        self.top = self.stack.pop() if self.stack else OTHER
        self.last = now
        if self.is_detailed:
            self._detail(top, now)

    def _detail(self, closed: int, now: int) -> None:
        """What is not taken at every marker: raw events, device events, CPU time."""
        if not self.started:
            self.started = True  # what came before (imports, building the model) is no step
            self.last_cpu = self.cpu_now
            self._open_books()
        if self.events is not None:
            self.events += (now, self.top)
        if self.device is not None:
            self.device.mark(closed)
        if self.is_sampled:
            self._take_cpu(closed)

    def enter_span(self, bucket: int, *, goes_on: bool = False) -> None:
        """Open a marker kept apart from the step: its CPU time is always taken."""
        self.enter(bucket)
        if not self.is_sampled:
            self._take_cpu(OTHER)
        if self.spans is not None:
            self.spans.enter(bucket, self.wall[bucket], goes_on=goes_on)

    def leave_span(self) -> None:
        """Close a marker of `enter_span`."""
        top = self.top
        self.leave()
        if not self.is_sampled:
            self._take_cpu(top)
        if self.spans is not None:
            self.spans.leave(top, self.wall[top])

    def _take_cpu(self, bucket: int) -> None:
        cpu = self.cpu_now
        self.cpu[bucket] += cpu - self.last_cpu
        self.last_cpu = cpu

    def leave_unmoved(self) -> None:
        """Close the innermost marker as if it had not been opened."""
        self.top = self.stack[-1] if self.stack else OTHER
        self.leave()

    def move(self, source: int, target: int) -> None:
        """Name pending time."""
        wall, cpu = self.wall, self.cpu
        wall[target] += wall[source]
        cpu[target] += cpu[source]
        wall[source] = cpu[source] = 0
        if self.device is not None:
            self.device.rename(source, target)

    def anchor(self) -> None:
        """Remember the sums: an evaluation that follows takes all since here."""
        self.mark = self.wall[:]
        self.mark_cpu = self.cpu[:]
        self.mark_batch()
        if self.device is not None:
            self.device.anchor()

    def mark_batch(self) -> None:
        """Remember where the work on a batch begins, for models that cannot be seen."""
        self.mark_other = self.wall[OTHER]
        self.mark_other_cpu = self.cpu[OTHER]
        if self.device is not None:
            self.device.mark_batch()

    # -- what the hooks report

    def disturb(self) -> None:
        """We are looking closer: this update takes longer than it would."""
        self.is_disturbed = True

    def settle(self) -> None:
        """Time after a backward or a call that led to no update is other."""
        wall = self.wall
        if wall[AFTER_FORWARD]:
            self.move(AFTER_FORWARD, OTHER)
        if wall[AFTER_BACKWARD]:
            self.move(AFTER_BACKWARD, OTHER)
        if wall[CLOSURE_HEAD]:
            self.move(CLOSURE_HEAD, OTHER)

    def enter_input(self, bucket: int) -> None:
        """The wait for a batch; after a backward a new micro-batch begins."""
        begins = self.top == AFTER_BACKWARD
        if begins:
            self.anchor()
        if bucket == INPUT_WAIT:
            self.enter(bucket)
        else:
            self.enter_span(bucket, goes_on=True)
        if begins:
            self.stack[-1] = OTHER
            self.move(AFTER_BACKWARD, OTHER)

    def leave_input(self) -> None:
        """A batch is there."""
        if self.top == INPUT_WAIT:
            self.leave()
        else:
            self.leave_span()
        self.mark_other = self.mark_prepare = self.wall[OTHER]
        self.mark_other_cpu = self.cpu[OTHER]
        self.prepares = True
        if self.device is not None:
            self.device.mark_batch()

    def end_prepare(self) -> None:
        """What was other since the batch arrived was to prepare it for the model."""
        self.prepares = False
        self.wall[PREPARE_NS] += max(0, self.wall[OTHER] - self.mark_prepare)

    def enter_forward(self) -> None:
        """The outermost call of a model, gradients wanted."""
        self.enter(FORWARD)
        if self.prepares:
            self.end_prepare()
        wall = self.wall
        if wall[AFTER_FORWARD] or wall[AFTER_BACKWARD] or wall[CLOSURE_HEAD]:
            self.settle()
        wall[FORWARDS] += 1

    def leave_forward(self, *, loss_inside: bool) -> None:
        """End of that call; `loss_inside`: it returned a scalar to go backward from."""
        self.leave()
        self.inner_loss = loss_inside
        self.top = AFTER_FORWARD

    def leave_loss(self) -> None:
        """End of a call known to compute the loss: what else precedes the backward is other."""
        self.leave()
        self.inner_loss = True

    def enter_backward(self) -> None:
        """A backward call: now the time before it can be named."""
        self.enter(BACKWARD)
        self.prepares = False  # no model was seen
        wall = self.wall
        if not wall[FORWARDS]:
            self.settle()
            self._take_other()
        elif not self.inner_loss:
            self.move(AFTER_FORWARD, LOSS)
        if wall[AFTER_FORWARD] or wall[AFTER_BACKWARD] or wall[CLOSURE_HEAD]:
            self.settle()
        wall[BACKWARDS] += 1

    def enter_grad(self) -> None:
        """`autograd.grad` for an update: as a backward call, but it is not counted."""
        self.enter_backward()
        self.wall[BACKWARDS] -= 1

    def end_by_hand(self) -> None:
        """No optimizer has stepped yet: the backward call that ended stands for the update."""
        top = self.top
        self.enter(BACKWARD)  # what flowed since it ended is booked up to now
        self.leave()
        self.update(BY_HAND, 0)
        self.top = top if self.stack else AFTER_BACKWARD  # an optimizer may still come

    def _take_other(self) -> None:
        """No call of a model was seen: what came since the batch is forward and loss together."""
        gone = self.wall[OTHER] - self.mark_other
        gone_cpu = self.cpu[OTHER] - self.mark_other_cpu
        self.wall[OTHER] -= gone
        self.cpu[OTHER] -= gone_cpu
        self.wall[FORWARD_AND_LOSS] += gone
        self.cpu[FORWARD_AND_LOSS] += gone_cpu
        if self.device is not None:
            self.device.rename(OTHER, FORWARD_AND_LOSS, since=self.device.batch_at)

    def leave_backward(self) -> None:
        """What follows is gradient processing if an update comes next."""
        self.leave()
        if not 0 < self.top < NUM_BUCKETS:  # else inside a call that goes on
            self.top = CLOSURE_TAIL if self.closure_depth else AFTER_BACKWARD
        self.mark_other = self.wall[OTHER]
        self.mark_other_cpu = self.cpu[OTHER]
        if self.device is not None:
            self.device.mark_batch()

    def enter_evaluation(self) -> None:
        """A call that only evaluates: all since the last anchor belongs to it."""
        if self.top == AFTER_BACKWARD:
            self.anchor()
        self.enter_span(EVALUATION)
        self.prepares = False
        wall, cpu, mark, mark_cpu = self.wall, self.cpu, self.mark, self.mark_cpu
        for i in EVALUATED:
            if i < NUM_BUCKETS or i >= NUM_WRITTEN:
                wall[EVALUATION] += wall[i] - mark[i]
                cpu[EVALUATION] += cpu[i] - mark_cpu[i]
            wall[i] = mark[i]
            cpu[i] = mark_cpu[i]
        if self.device is not None:
            self.device.take_evaluation()

    def leave_evaluation(self) -> None:
        """End of an evaluating call."""
        self.leave_span()
        self.anchor()

    def enter_optimizer(self, *, has_closure: bool) -> None:
        """An optimizer's step begins; nested ones count once."""
        self.optimizer_depth += 1
        if self.optimizer_depth > 1:
            return
        self.closure_depth = int(has_closure)
        self.enter(CLOSURE_HEAD if has_closure else OPTIMIZER)
        self.move(AFTER_BACKWARD, GRADIENT_PROCESSING)
        if self.wall[AFTER_FORWARD]:
            self.move(AFTER_FORWARD, OTHER)

    def leave_optimizer(self, optimizer: Any, skipped: int | None) -> None:
        """The update is done: hand over the sums."""
        if self.optimizer_depth == 0:
            return  # the step began before the hooks did
        self.optimizer_depth -= 1
        if self.optimizer_depth:
            return
        self.leave_empty_step()
        self.update(optimizer, skipped)

    def leave_inner_optimizer(self) -> None:
        """A step inside a step ends: it counts with the outer one."""
        self.optimizer_depth = max(0, self.optimizer_depth - 1)
        self.wall[INNER_STEPS] += 1

    def leave_empty_step(self) -> None:
        """A step ends and the update goes on: a wrapper let nothing through."""
        self.optimizer_depth = 0
        self.leave()
        if self.closure_depth:
            self.closure_depth = 0
            self.move(CLOSURE_HEAD, OPTIMIZER)
            self.move(CLOSURE_TAIL, OPTIMIZER)

    def skip_update(self, optimizer: Any) -> None:
        """A gradient scaler found infinities and left the optimizer out."""
        self.enter(GRADIENT_PROCESSING)
        self.leave()
        self.move(AFTER_BACKWARD, GRADIENT_PROCESSING)
        self.update(optimizer, 1)

    def drop_optimizers(self) -> None:
        """The steps that seem open were left by an exception; what they took is other."""
        self.optimizer_depth = self.closure_depth = 0
        while self.stack:
            self.leave()
        self.settle()
        self.move(CLOSURE_TAIL, OTHER)

    def update(self, optimizer: Any, skipped: int | None) -> None:
        """Close the books on one optimizer update."""
        wall = self.wall
        if wall[AFTER_FORWARD] or wall[AFTER_BACKWARD] or wall[CLOSURE_HEAD] or wall[CLOSURE_TAIL]:
            self.settle()
            self.move(CLOSURE_TAIL, OTHER)
        if not self.stack:  # else inside a backward or a call that goes on
            self.top = OTHER
        if not self.is_sampled:
            self._take_cpu(OTHER)
        if self.prepares:  # a batch fetched ahead: the rest counts in the next update
            self.end_prepare()
            self.prepares = True
        self.sink.add(self, optimizer, skipped)
        self.is_disturbed = False
        self._open_books()
        self.num_updates = number = self.num_updates + 1
        self.is_sampled = is_sampled_at(number)
        self.is_detailed = self.is_sampled or self.events is not None or self.device is not None
