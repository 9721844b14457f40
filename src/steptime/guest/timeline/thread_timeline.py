"""One exclusive timeline for each thread: each instant belongs to the innermost open marker.

What the hooks noted (`journal.py`) is replayed through `enter`, `leave` and the few events below;
at the end of an update the sums go to a sink as one list. Some time can be named only later: what
follows the model's call is loss if a backward comes next. Until then it waits in a pending bucket.
No torch here, and no clock.
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
from .rollout_time import RolloutTime
from .watch_budget import is_sampled_at

NEVER = 1 << 62


class Sink(Protocol):
    """Receives finished updates."""

    def add(self, timeline: ThreadTimeline, optimizer: Any, skipped: int | None) -> None:
        """Take the sums of a finished update."""


class ThreadTimeline:
    """The markers of one thread.

    `wall` holds exclusive nanoseconds by bucket, then the counts, then the pending time; `cpu`
    holds the process CPU nanoseconds in the same order. `top` is the bucket that receives time now.
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
        "rollout",
        "samples_all",
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
        self.spans: Any = None  # sorts the time of spans by their place in the code
        self.reset(0, 0)

    def reset(self, now: int, cpu_now: int) -> None:
        """Forget everything: this is a new thread, or a child after a fork."""
        self.now = now
        self.cpu_now = cpu_now
        self.thread = -1
        self.num_updates = 0
        self.samples_all = False
        self.started = False
        self.is_sampled = self.is_detailed = True
        self.is_disturbed = False  # a probe of ours made this update longer
        self.stack: list[int] = []
        self.optimizer_depth = 0
        self.closure_depth = 0
        self.prepares = False  # a batch has arrived, and no model has been called with it
        self.rollout = RolloutTime()
        self.events: list[int] | None = None
        self.tag: tuple[int, ...] | None = None  # what a trial says about the update that ends
        self.top = OTHER
        self.last = now
        self.last_cpu = cpu_now
        self._open_books()

    def _open_books(self) -> None:
        """Begin a new update."""
        self.start = self.last
        self.wall = [0] * SIZE
        self.cpu = [0] * SIZE
        self.inner_loss = False
        self.mark: Sequence[int] = ZEROS
        self.mark_cpu: Sequence[int] = ZEROS
        self.mark_other = self.mark_other_cpu = self.mark_prepare = 0

    # -- the two moves

    def enter(self, bucket: int) -> None:
        """Open a marker: from now on the time belongs to `bucket`."""
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
        """Take what is not taken at every marker: raw events, device events, CPU time."""
        if not self.started:
            self.started = True  # what came before (imports, building the model) is no step
            self.last_cpu = self.cpu_now
            self._open_books()
        if self.events is not None:
            self.events += (now - self.start, self.top)
        if self.device is not None:
            self.device.mark(closed)
        if self.is_sampled:
            self._take_cpu(closed)

    def enter_span(self, bucket: int, *, goes_on: bool = False) -> None:
        """Open a marker that is kept apart from the step; its CPU time is always measured."""
        self.enter(bucket)
        if not self.is_sampled:
            self._take_cpu(OTHER)
        if self.spans is not None:
            self.spans.enter(bucket, self.wall[bucket], goes_on=goes_on)

    def leave_span(self) -> None:
        """Close a marker that `enter_span` opened."""
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
        """Close the innermost marker as if it had never been opened."""
        self.top = self.stack[-1] if self.stack else OTHER
        self.leave()

    def move(self, source: int, target: int) -> None:
        """Give pending time its name."""
        wall, cpu = self.wall, self.cpu
        wall[target] += wall[source]
        cpu[target] += cpu[source]
        wall[source] = cpu[source] = 0
        if self.device is not None:
            self.device.rename(source, target)

    def anchor(self) -> None:
        """Remember the sums: an evaluation that follows takes everything since here."""
        self.mark = self.wall[:]
        self.mark_cpu = self.cpu[:]
        self.mark_batch()
        if self.device is not None:
            self.device.anchor()

    def mark_batch(self) -> None:
        """Remember where the work on a batch begins, for models whose calls cannot be seen."""
        self.mark_other = self.wall[OTHER]
        self.mark_other_cpu = self.cpu[OTHER]
        if self.device is not None:
            self.device.mark_batch()

    # -- what the hooks report

    def resume(self, num: int, last: int, cpu: int) -> None:
        """Go on after `num` updates that were only counted; the last one ended at `last` [ns]."""
        self.stack.clear()
        self.top = OTHER
        self.last, self.last_cpu = last, cpu
        self.prepares = False
        self.num_updates += num
        self._open_books()
        self.is_sampled = self.is_detailed = self.samples_all = True
        if self.device is not None:
            self.device.start_again()

    def disturb(self) -> None:
        """Mark this update as longer than it would be: we examine it more closely."""
        self.is_disturbed = True

    def settle(self) -> None:
        """Book as other the time after a backward or a call that led to no update."""
        wall = self.wall
        if wall[AFTER_FORWARD]:
            self.move(AFTER_FORWARD, OTHER)
        if wall[AFTER_BACKWARD]:
            self.move(AFTER_BACKWARD, OTHER)
        if wall[CLOSURE_HEAD]:
            self.move(CLOSURE_HEAD, OTHER)

    def enter_input(self, bucket: int) -> None:
        """Begin the wait for a batch; after a backward, a new micro-batch begins with it."""
        begins = self.top == AFTER_BACKWARD
        if begins:
            self.anchor()
        if bucket == INPUT_WAIT:
            self.enter(bucket)
        else:
            self.enter_span(bucket, goes_on=True)
        if self.rollout.first is not None:
            self.rollout.drop_uncertain(self)
        if begins:
            self.stack[-1] = OTHER
            self.move(AFTER_BACKWARD, OTHER)

    def leave_input(self) -> None:
        """End the wait: a batch has arrived."""
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
        """Count as preparation what was other since the batch arrived."""
        self.prepares = False
        self.wall[PREPARE_NS] += max(0, self.wall[OTHER] - self.mark_prepare)

    def enter_forward(self) -> None:
        """Begin the outermost call of a model with gradients."""
        self.enter(FORWARD)
        if self.prepares:
            self.end_prepare()
        wall = self.wall
        if wall[AFTER_FORWARD] or wall[AFTER_BACKWARD] or wall[CLOSURE_HEAD]:
            self.settle()
        self.rollout.see_forward(self)
        wall[FORWARDS] += 1

    def leave_forward(self, *, loss_inside: bool) -> None:
        """End that call; with `loss_inside` it returned a scalar that backward can start from."""
        self.leave()
        self.inner_loss = loss_inside
        self.top = AFTER_FORWARD

    def leave_loss(self) -> None:
        """End a call that is known to compute the loss: other time before the backward is other."""
        self.leave()
        self.inner_loss = True

    def enter_backward(self) -> None:
        """Begin a backward call: the time before it can be named now."""
        self.enter(BACKWARD)
        self.prepares = False  # no model was seen
        wall = self.wall
        if self.rollout.is_open:
            self.rollout.close(self)
        if not wall[FORWARDS]:
            self.settle()
            self._take_other()
        elif not self.inner_loss:
            self.move(AFTER_FORWARD, LOSS)
        if wall[AFTER_FORWARD] or wall[AFTER_BACKWARD] or wall[CLOSURE_HEAD]:
            self.settle()
        wall[BACKWARDS] += 1

    def enter_grad(self) -> None:
        """Begin `autograd.grad` for an update: like a backward call, but not counted."""
        self.enter_backward()
        self.wall[BACKWARDS] -= 1

    def end_by_hand(self) -> None:
        """End an update with a backward call, because no optimizer has stepped yet."""
        top = self.top
        self.enter(BACKWARD)  # book what has passed since the call ended
        self.leave()
        self.update(BY_HAND, 0)
        self.top = top if self.stack else AFTER_BACKWARD  # an optimizer may still come

    def _take_other(self) -> None:
        """Book what came since the batch as forward and loss together: no model's call was seen."""
        gone = self.wall[OTHER] - self.mark_other
        gone_cpu = self.cpu[OTHER] - self.mark_other_cpu
        self.wall[OTHER] -= gone
        self.cpu[OTHER] -= gone_cpu
        self.wall[FORWARD_AND_LOSS] += gone
        self.cpu[FORWARD_AND_LOSS] += gone_cpu
        if self.device is not None:
            self.device.rename(OTHER, FORWARD_AND_LOSS, since=self.device.batch_at)

    def leave_backward(self) -> None:
        """End a backward call; what follows is gradient processing if an update comes next."""
        self.leave()
        if not 0 < self.top < NUM_BUCKETS:  # else we are inside a call that continues
            self.top = CLOSURE_TAIL if self.closure_depth else AFTER_BACKWARD
        self.mark_other = self.wall[OTHER]
        self.mark_other_cpu = self.cpu[OTHER]
        if self.device is not None:
            self.device.mark_batch()

    def enter_evaluation(self) -> None:
        """Begin a call that only evaluates; everything since the last anchor belongs to it."""
        if self.top == AFTER_BACKWARD:
            self.anchor()
        self.enter_span(EVALUATION)
        if self.rollout.is_open:
            self.rollout.end_before_evaluation(self)
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
        """End a call that only evaluates."""
        self.leave_span()
        self.anchor()

    def enter_optimizer(self, *, has_closure: bool) -> None:
        """Begin an optimizer's step; nested steps count once."""
        self.optimizer_depth += 1
        if self.optimizer_depth > 1:
            return
        self.closure_depth = int(has_closure)
        self.enter(CLOSURE_HEAD if has_closure else OPTIMIZER)
        self.move(AFTER_BACKWARD, GRADIENT_PROCESSING)
        if self.wall[AFTER_FORWARD]:
            self.move(AFTER_FORWARD, OTHER)

    def leave_optimizer(self, optimizer: Any, skipped: int | None) -> None:
        """End the update and hand over the sums."""
        if self.optimizer_depth == 0:
            return  # the step began before the hooks were in place
        self.optimizer_depth -= 1
        if self.optimizer_depth:
            return
        self.leave_empty_step()
        self.update(optimizer, skipped)

    def leave_inner_optimizer(self) -> None:
        """End a step inside a step: it counts with the outer one."""
        self.optimizer_depth = max(0, self.optimizer_depth - 1)
        self.wall[INNER_STEPS] += 1

    def leave_empty_step(self) -> None:
        """End a step without ending the update: a wrapper passed nothing on."""
        self.optimizer_depth = 0
        self.leave()
        if self.closure_depth:
            self.closure_depth = 0
            self.move(CLOSURE_HEAD, OPTIMIZER)
            self.move(CLOSURE_TAIL, OPTIMIZER)

    def skip_update(self, optimizer: Any) -> None:
        """End an update that a gradient scaler skipped because it found infinities."""
        self.enter(GRADIENT_PROCESSING)
        self.leave()
        self.move(AFTER_BACKWARD, GRADIENT_PROCESSING)
        self.update(optimizer, 1)

    def drop_optimizers(self) -> None:
        """Close the steps that an exception left open; their time is other."""
        self.optimizer_depth = self.closure_depth = 0
        while self.stack:
            self.leave()
        self.settle()
        self.move(CLOSURE_TAIL, OTHER)

    def update(self, optimizer: Any, skipped: int | None) -> None:
        """Close one optimizer update and hand over its sums."""
        wall = self.wall
        if wall[AFTER_FORWARD] or wall[AFTER_BACKWARD] or wall[CLOSURE_HEAD] or wall[CLOSURE_TAIL]:
            self.settle()
            self.move(CLOSURE_TAIL, OTHER)
        if self.rollout.is_open:
            self.rollout.close(self)
        if not self.stack:  # else we are inside a backward or a call that continues
            self.top = OTHER
        if not self.is_sampled:
            self._take_cpu(OTHER)
        if self.prepares:  # a batch was fetched ahead: the rest counts in the next update
            self.end_prepare()
            self.prepares = True
        self.sink.add(self, optimizer, skipped)
        self.is_disturbed = False
        self._open_books()
        self.num_updates = number = self.num_updates + 1
        self.is_sampled = self.samples_all or is_sampled_at(number)
        self.is_detailed = self.is_sampled or self.events is not None or self.device is not None
