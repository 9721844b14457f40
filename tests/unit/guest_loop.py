"""A training loop whose clock is advanced by hand, as the guest's hooks would report it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from steptime.guest.timeline.thread_timeline import ThreadTimeline
from steptime.record.buckets import (
    BATCHES,
    BUCKETS,
    COUNTS,
    EPOCH_START,
    INPUT_WAIT,
    LOSS,
    NUM_BUCKETS,
    NUM_WRITTEN,
)

FIRST_TIME = 1_000_000


@dataclass
class Update:
    """What the timeline handed over; times in nanoseconds, buckets that are zero left out."""

    optimizer: Any
    skipped: int | None
    start: int
    end: int
    wall: dict[str, int]
    cpu: dict[str, int]
    counts: dict[str, int]
    pending: int
    is_sampled: bool


@dataclass
class Sink:
    updates: list[Update] = field(default_factory=list)

    def add(self, timeline: ThreadTimeline, optimizer: Any, skipped: int | None) -> None:
        self.updates.append(
            Update(
                optimizer=optimizer,
                skipped=skipped,
                start=timeline.start,
                end=timeline.last,
                wall=by_name(BUCKETS, timeline.wall),
                cpu=by_name(BUCKETS, timeline.cpu),
                counts=by_name(COUNTS, timeline.wall[NUM_BUCKETS:]),
                pending=sum(map(abs, timeline.wall[NUM_WRITTEN:])),
                is_sampled=timeline.is_sampled,
            )
        )


def by_name(names: tuple[str, ...], values: list[int]) -> dict[str, int]:
    return {name: value for name, value in zip(names, values, strict=False) if value}


class Loop:
    """A training loop in the making: each verb is what the hooks would report of it."""

    def __init__(self, sink: Any = None) -> None:
        self.now = FIRST_TIME
        self.cpu_now = 0
        self.first_start = 0
        self.sink = Sink() if sink is None else sink
        self.timeline = ThreadTimeline(self.sink)
        self.timeline.reset(self.now, self.cpu_now)

    def spend(self, wall: int, cpu: int | None = None) -> None:
        self.now += wall
        self.cpu_now += wall if cpu is None else cpu
        self.timeline.now, self.timeline.cpu_now = self.now, self.cpu_now

    @contextmanager
    def marker(self, bucket: int) -> Iterator[None]:
        self.timeline.enter(bucket)
        yield
        self.timeline.leave()

    @contextmanager
    def span(self, bucket: int) -> Iterator[None]:
        self.timeline.enter_span(bucket)
        yield
        self.timeline.leave_span()

    def batch(self, wall: int = 0, *, spins_up: bool = False) -> None:
        self.timeline.enter_input(EPOCH_START if spins_up else INPUT_WAIT)
        self.spend(wall)
        self.timeline.wall[BATCHES] += 1
        self.timeline.leave_input()

    def forward(self, wall: int = 0, *, loss_inside: bool = False) -> None:
        self.timeline.enter_forward()
        self.spend(wall)
        self.timeline.leave_forward(loss_inside=loss_inside)

    def loss_module(self, wall: int = 0) -> None:
        self.timeline.enter(LOSS)
        self.spend(wall)
        self.timeline.leave_loss()

    def backward(self, wall: int = 0) -> None:
        with self.inside_backward():
            self.spend(wall)

    @contextmanager
    def inside_backward(self) -> Iterator[None]:
        self.timeline.enter_backward()
        yield
        self.timeline.leave_backward()

    def evaluate(self, wall: int = 0) -> None:
        self.timeline.enter_evaluation()
        self.spend(wall)
        self.timeline.leave_evaluation()

    def act(self, wall: int = 0, *, grows: bool = True) -> None:
        """A call without gradients that seems to act, or to generate as its input grows."""
        self.timeline.rollout.enter_call(self.timeline, grows=grows)
        self.spend(wall)
        self.timeline.rollout.leave_call(self.timeline)

    def environment(self, wall: int = 0) -> None:
        self.timeline.rollout.enter_step(self.timeline)
        self.spend(wall)
        self.timeline.rollout.leave_certain(self.timeline)

    def generate(self, wall: int = 0) -> None:
        self.timeline.rollout.enter_generation(self.timeline)
        self.spend(wall)
        self.timeline.rollout.leave_certain(self.timeline)

    def step(self, wall: int = 0, *, optimizer: Any = "optimizer") -> None:
        with self.inside_step(optimizer=optimizer):
            self.spend(wall)

    @contextmanager
    def inside_step(
        self, *, has_closure: bool = False, optimizer: Any = "optimizer", skipped: int | None = 0
    ) -> Iterator[None]:
        self.timeline.enter_optimizer(has_closure=has_closure)
        yield
        self.timeline.leave_optimizer(optimizer, skipped)

    def start(self) -> None:
        """An empty update, so that what follows has a beginning."""
        self.step()
        self.sink.updates.clear()
        self.first_start = self.timeline.start

    @property
    def updates(self) -> list[Update]:
        return self.sink.updates

    @property
    def update(self) -> Update:
        (update,) = self.sink.updates
        return update
