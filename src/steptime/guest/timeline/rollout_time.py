"""Which part of an update is a rollout: the script acts in an environment, or generates.

What an update trains on is made before it: environments are stepped, models are called without
gradients, step after step. Two kinds of event tell of it. A step of an environment is certain. Of
calls without gradients that seem to act or to generate (`ActingCalls`), several on a text that
grows are certain, and no others: an evaluation and a frozen encoder look like acting. The rollout
lasts from the first event to the update's own
forward: rewards, returns and what is drawn from a buffer belong to it. Where no forward is seen, it
lasts to the last event.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from ...record.buckets import ACTING, FORWARD, OTHER, ROLLOUT

MIN_CALLS = 4
"""Fewer calls without gradients on what grows are chance: lengths of batches differ, too."""


class RolledTimeline(Protocol):
    """A timeline, as far as a rollout needs it; `thread_timeline.py` has it."""

    wall: list[int]
    cpu: list[int]
    device: Any
    spans: Any
    prepares: bool
    mark_other: int
    mark_other_cpu: int
    mark_prepare: int

    def enter(self, bucket: int) -> None:
        """Open a marker."""

    def leave(self) -> None:
        """Close the innermost marker."""

    def move(self, source: int, target: int) -> None:
        """Give pending time its name."""

    def anchor(self) -> None:
        """Remember the sums: an evaluation that follows takes everything since here."""

    def end_prepare(self) -> None:
        """Count as preparation what was other since the batch arrived."""


class Mark(NamedTuple):
    """The sums of a timeline at one moment [ns], and the place in its device's marks."""

    other: int
    other_cpu: int
    forward: int
    forward_cpu: int
    at: int


def mark_of(timeline: RolledTimeline) -> Mark:
    """Return the sums as they are now."""
    wall, cpu, device = timeline.wall, timeline.cpu, timeline.device
    at = 0 if device is None else device.here()
    return Mark(wall[OTHER], cpu[OTHER], wall[FORWARD], cpu[FORWARD], at)


class RolloutTime:
    """The rollout of one update of one thread.

    `first` is where it begins, `last` the end of its last event, and `tried` the first call with
    gradients after that: the update's own forward, unless an environment is stepped after it.
    """

    __slots__ = ("first", "has_environment", "is_certain", "last", "num_calls", "tried")

    def __init__(self) -> None:
        self.has_environment = False
        self.forget()

    def forget(self) -> None:
        """Begin anew: the update's own work has begun."""
        self.first: Mark | None = None
        self.last: Mark | None = None
        self.tried: Mark | None = None
        self.num_calls = 0
        self.is_certain = False

    @property
    def is_open(self) -> bool:
        """True where anything is to be closed."""
        return self.first is not None or self.tried is not None

    def see_forward(self, timeline: RolledTimeline) -> None:
        """Take a call with gradients, which may be the update's own, and has just been entered."""
        if self.tried is None and (self.has_environment or self.first is not None):
            self.tried = mark_of(timeline)

    def enter_call(self, timeline: RolledTimeline, *, grows: bool) -> None:
        """Begin a call without gradients that seems to act, or to generate as its input grows."""
        if self.tried is not None:  # the update's own work has begun
            timeline.enter(FORWARD)
            return
        timeline.enter(ACTING)
        self._begin(timeline)
        self.num_calls += grows
        self.is_certain |= self.num_calls >= MIN_CALLS

    def leave_call(self, timeline: RolledTimeline) -> None:
        """End that call."""
        timeline.leave()
        self._end_event(timeline)

    def enter_step(self, timeline: RolledTimeline) -> None:
        """Begin a step of an environment: calls with gradients since the last one chose it."""
        timeline.enter(ROLLOUT)
        self.has_environment = self.is_certain = True
        tried, self.tried = self.tried, None
        if tried is None:
            self._begin(timeline)
            self._tell_place(timeline)
            return
        for sums, before in (timeline.wall, tried.forward), (timeline.cpu, tried.forward_cpu):
            sums[ROLLOUT] += sums[FORWARD] - before
            sums[FORWARD] = before
        if timeline.device is not None:
            timeline.device.rename(FORWARD, ROLLOUT, since=tried.at)
        if self.first is None:
            self.first = tried
        self._tell_place(timeline)

    def enter_generation(self, timeline: RolledTimeline) -> None:
        """Begin a call that generates."""
        timeline.enter(ROLLOUT)
        if self.tried is None:
            self._begin(timeline)
            self.is_certain = True
        self._tell_place(timeline)

    def leave_certain(self, timeline: RolledTimeline) -> None:
        """End one of the two."""
        timeline.leave()
        if timeline.spans is not None:
            timeline.spans.leave(ROLLOUT, timeline.wall[ROLLOUT])
        self._end_event(timeline)

    @staticmethod
    def _tell_place(timeline: RolledTimeline) -> None:
        if timeline.spans is not None:
            timeline.spans.enter(ROLLOUT, timeline.wall[ROLLOUT], goes_on=False)

    def _end_event(self, timeline: RolledTimeline) -> None:
        if self.first is not None and self.tried is None:
            self.last = mark_of(timeline)

    def _begin(self, timeline: RolledTimeline) -> None:
        if timeline.prepares:
            timeline.end_prepare()
        if self.first is None:
            self.first = mark_of(timeline)

    def drop_uncertain(self, timeline: RolledTimeline) -> None:
        """Take a batch of a loader: what came before and is not certain was no rollout."""
        if not self.is_certain:
            self.close(timeline)

    def end_before_evaluation(self, timeline: RolledTimeline) -> None:
        """End a certain rollout at this moment; what is not certain belongs to the evaluation."""
        if self.is_certain:
            self.last, self.tried = mark_of(timeline), None
            self.close(timeline)
            timeline.anchor()
        else:
            self.forget()

    def close(self, timeline: RolledTimeline) -> None:
        """Give the time its name: the update's own work has begun, or the update ends."""
        first, end = self.first, self.tried or self.last
        is_certain = self.is_certain
        self.forget()
        timeline.move(ACTING, ROLLOUT if is_certain else FORWARD)
        if not is_certain or first is None or end is None:
            return
        gone, gone_cpu = end.other - first.other, end.other_cpu - first.other_cpu
        for sums, moved in (timeline.wall, gone), (timeline.cpu, gone_cpu):
            sums[OTHER] -= moved
            sums[ROLLOUT] += moved
        if timeline.device is not None:
            timeline.device.rename(OTHER, ROLLOUT, since=first.at, until=end.at)
        if timeline.mark_other < end.other:  # the work on what was made begins where it ends
            timeline.mark_other, timeline.mark_other_cpu = end.other, end.other_cpu
            if timeline.device is not None:
                timeline.device.batch_at = end.at
        timeline.mark_other -= gone
        timeline.mark_other_cpu -= gone_cpu
        timeline.mark_prepare = max(timeline.mark_prepare, end.other) - gone


class ActingCalls:
    """Tells by sizes which calls without gradients act or generate.

    Sizes are elements of a call's first tensor. `trained` is that of the largest call with
    gradients in the last update that had one, `acted` that of the last call before an
    environment's step, `grows` whether the last call had somewhat more than the one before it,
    and `mode` whether the model of the last call was in training mode, None where there was
    none.
    """

    __slots__ = (
        *("acted", "acts_in_eval", "acts_in_training", "grows", "last", "mode", "number"),
        "trained",
    )

    def __init__(self) -> None:
        self.trained = self.last = self.acted = self.number = 0
        self.mode: bool | None = None
        self.acts_in_training = self.acts_in_eval = self.grows = False

    def begin(self, number: int) -> None:
        """Forget the last call if it belongs to an update before the one with this number."""
        if number != self.number:
            self.number, self.last, self.mode = number, 0, None

    @property
    def acts_only_in_eval(self) -> bool:
        """True where models are in eval mode when environments are stepped, as in some libraries.

        Where they were in training mode once, a model in eval mode is evaluated.
        """
        return self.acts_in_eval and not self.acts_in_training

    def is_acting(self, elements: int, *, is_trained: bool, in_training: bool) -> bool:
        """Return whether a call acts or generates.

        A state to act in is smaller than what an update trains on, and a text that is generated
        grows. What is called before the steps of an environment may be a copy of what is trained.
        """
        before, self.last, self.mode = self.last, elements, in_training
        self.grows = before < elements <= 2 * before
        if not elements:
            return False
        if elements == self.acted:
            return True
        return is_trained and (elements < self.trained or self.grows)

    def see_environment(self, *, has_graph: bool) -> None:
        """Take a step of an environment; the call before it, if there was one, chose the action.

        `has_graph`: models were called with gradients in this update.
        """
        if self.last:
            self.acted = self.last
        if self.mode is not None or has_graph:
            self.acts_in_training |= self.mode is not False
            self.acts_in_eval |= self.mode is False
