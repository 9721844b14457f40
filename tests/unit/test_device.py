"""The device clock with events made up here: work is done when the test says so."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from steptime.guest.count.operators.operator_times import OperatorTimes
from steptime.guest.frameworks.torch.device_clock import MAX_WAITING, DeviceClock
from steptime.guest.timeline.thread_timeline import ThreadTimeline
from steptime.record.buckets import (
    BACKWARD,
    BUCKETS,
    CHECKPOINT,
    FORWARD,
    GRADIENT_PROCESSING,
    H2D,
    NUM_BUCKETS,
    OPTIMIZER,
)
from unit.guest_loop import Loop, Sink, by_name

MS = 1_000_000


@dataclass
class Device:
    """Work is put on a queue [ms]; `done_ms` says how far the device has come."""

    put_ms: float = 0
    done_ms: float = 0
    is_capturing: bool = False
    num_events: int = 0

    def new_event(self) -> Event:
        self.num_events += 1
        return Event(self)

    def finish(self) -> None:
        self.done_ms = self.put_ms


@dataclass(eq=False)
class Event:
    device: Device
    at_ms: float = -1

    def record(self) -> None:
        self.at_ms = self.device.put_ms

    def query(self) -> bool:
        return self.at_ms <= self.device.done_ms

    def elapsed_time(self, end: Event) -> float:
        assert self.query()
        assert end.query()
        return end.at_ms - self.at_ms


class Watched:
    """A device clock whose marks are made by hand."""

    def __init__(self) -> None:
        self.device = Device()
        self.clock = DeviceClock(self.device.new_event, lambda: self.device.is_capturing)

    def work(self, bucket: int, milliseconds: float) -> None:
        self.device.put_ms += milliseconds
        self.clock.mark(bucket)

    def read(self) -> dict[int, dict[str, int]]:
        """What has become known since the last look: update to nanoseconds by bucket."""
        lines = [json.loads(line) for line in self.clock.pop_lines()]
        assert all(line["k"] == "d" and len(line["d"]) == NUM_BUCKETS for line in lines)
        return {line["n"]: by_name(BUCKETS, line["d"]) for line in lines}


@pytest.fixture
def watched() -> Watched:
    """One that has its first mark, where the first update begins."""
    watched = Watched()
    watched.clock.mark(OPTIMIZER)
    return watched


# -- one update after the other


def test_time_between_two_marks_belongs_to_the_marker_that_was_closed(watched: Watched) -> None:
    watched.work(FORWARD, 3)
    watched.work(BACKWARD, 5)
    watched.work(FORWARD, 1)
    watched.work(OPTIMIZER, 2)
    watched.clock.close_update(0)
    watched.device.finish()

    assert watched.read() == {0: {"forward": 4 * MS, "backward": 5 * MS, "optimizer": 2 * MS}}


def test_an_update_begins_with_the_last_mark_of_the_one_before(watched: Watched) -> None:
    watched.work(OPTIMIZER, 2)
    watched.clock.close_update(0)
    watched.work(H2D, 7)
    watched.work(OPTIMIZER, 1)
    watched.clock.close_update(1)
    watched.device.finish()

    assert watched.read() == {
        0: {"optimizer": 2 * MS},
        1: {"h2d": 7 * MS, "optimizer": 1 * MS},
    }


def test_nothing_is_read_before_the_device_has_come_so_far(watched: Watched) -> None:
    watched.work(FORWARD, 3)
    watched.clock.close_update(0)
    watched.work(FORWARD, 4)
    watched.clock.close_update(1)

    assert watched.read() == {}
    watched.device.done_ms = 3
    assert watched.read() == {0: {"forward": 3 * MS}}
    watched.device.finish()
    assert watched.read() == {1: {"forward": 4 * MS}}
    assert watched.read() == {}


def test_events_are_used_again_once_they_are_read(watched: Watched) -> None:
    for number in range(100):
        watched.work(FORWARD, 1)
        watched.work(BACKWARD, 2)
        watched.device.finish()
        watched.clock.close_update(number)

    assert set(map(str, watched.read().values())) == {str({"forward": MS, "backward": 2 * MS})}
    assert watched.device.num_events <= 5


def test_a_device_that_falls_behind_costs_the_oldest_updates_and_bounded_memory(
    watched: Watched,
) -> None:
    for number in range(3 * MAX_WAITING):
        watched.work(FORWARD, 1)
        watched.clock.close_update(number)

    assert watched.clock.num_lost == 2 * MAX_WAITING
    assert watched.device.num_events <= MAX_WAITING + 2
    watched.device.finish()
    read = watched.read()
    assert list(read) == list(range(2 * MAX_WAITING, 3 * MAX_WAITING))
    assert all(times == {"forward": MS} for times in read.values())


def test_no_event_is_put_while_a_graph_is_captured(watched: Watched) -> None:
    watched.device.is_capturing = True
    watched.work(FORWARD, 3)
    watched.clock.close_update(0)
    watched.device.is_capturing = False
    watched.work(OPTIMIZER, 2)
    watched.clock.close_update(1)
    watched.device.finish()

    assert watched.device.num_events == 2
    assert watched.read()[1] == {"optimizer": 5 * MS}


def test_an_update_without_marks_has_no_device_time() -> None:
    watched = Watched()
    watched.clock.close_update(0)

    assert watched.read() == {}


# -- beside the host's timeline


class DeviceSink(Sink):
    """Closes the device's books as the recorder does."""

    def add(self, timeline: ThreadTimeline, optimizer: object, skipped: int | None) -> None:
        super().add(timeline, optimizer, skipped)
        if timeline.device is not None:
            timeline.device.close_update(len(self.updates))


class DeviceLoop(Loop):
    """A loop whose device works as long as its host, 1 ms for each tick of the host's clock."""

    def __init__(self) -> None:
        super().__init__(DeviceSink())
        self.start()
        self.watched = Watched()
        self.timeline.device = self.watched.clock
        self.step()  # its marks open the update that follows
        self.sink.updates.clear()

    def spend(self, wall: int, cpu: int | None = None) -> None:
        super().spend(wall, cpu)
        if self.first_start:
            self.watched.device.put_ms += wall

    def device_ms(self) -> dict[str, float]:
        """Device time of the only update."""
        self.watched.device.finish()
        found = self.watched.read()
        return {name: ns / MS for name, ns in found[1].items()}


@pytest.fixture
def loop() -> DeviceLoop:
    """A loop with a device, at the beginning of an update."""
    return DeviceLoop()


def check_device_follows_host(loop: DeviceLoop) -> None:
    """Both clocks ran alike, so both books must say the same."""
    assert loop.device_ms() == loop.update.wall


def test_the_device_has_the_names_that_the_host_gives_in_the_end(loop: DeviceLoop) -> None:
    loop.batch(100)
    loop.spend(1)
    loop.forward(20)
    loop.spend(3)  # a functional loss
    loop.backward(40)
    loop.spend(5)
    with loop.marker(GRADIENT_PROCESSING):
        loop.spend(7)
    loop.step(10)

    assert loop.update.wall["loss"] == 3
    check_device_follows_host(loop)


def test_a_compiled_function_is_forward_and_loss_on_the_device_too(loop: DeviceLoop) -> None:
    for _ in range(2):
        loop.spend(2)
        loop.batch(100)
        loop.spend(30)
        loop.backward(20)
    loop.step(1)

    assert loop.update.wall["forward_and_loss"] == 60
    check_device_follows_host(loop)


def test_an_evaluation_takes_its_loading_on_the_device_too(loop: DeviceLoop) -> None:
    for _ in range(2):
        loop.batch(100)
        with loop.marker(H2D):
            loop.spend(50)
        loop.evaluate(10)
        loop.spend(5)
    with loop.span(CHECKPOINT):
        loop.spend(200)
    loop.evaluate(10)
    loop.forward(20, loss_inside=True)
    loop.backward(30)
    loop.step(1)

    assert loop.update.wall["evaluation"] == 340
    check_device_follows_host(loop)


def test_a_closure_is_divided_on_the_device_too(loop: DeviceLoop) -> None:
    with loop.inside_step(has_closure=True):
        loop.spend(2)
        loop.forward(10)
        loop.spend(3)
        loop.backward(20)
        loop.spend(40)

    assert loop.update.wall["optimizer"] == 40
    check_device_follows_host(loop)


# -- single operators


GPU = SimpleNamespace(device=SimpleNamespace(type="cuda", index=0))
HOST = SimpleNamespace(device=SimpleNamespace(type="cpu", index=None))


class Timed:
    """Operator times whose operators are put by hand, each with a row of its own."""

    def __init__(self) -> None:
        self.device = Device()
        self.times = OperatorTimes(
            self.device.new_event, lambda: 0, lambda: self.device.is_capturing
        )

    def run(self, milliseconds: float, *tensors: Any) -> list[int]:
        began = self.times.mark()
        self.device.put_ms += milliseconds
        row = [0, 0]
        self.times.book((began, self.times.mark()), tensors or (GPU,), (row,))
        self.device.put_ms += 1  # what is between two operators is of neither
        return row


def test_an_operator_has_the_time_between_its_marks_once_the_last_has_passed() -> None:
    timed = Timed()
    rows = [timed.run(3), timed.run(5, HOST, GPU)]

    assert not timed.times.have_passed()
    assert not timed.times.read(1)
    timed.device.finish()
    assert timed.times.have_passed()
    assert timed.times.read(1)
    assert rows == [[0, 3 * MS], [0, 5 * MS]]


def test_an_operator_on_the_host_has_no_time_on_the_device() -> None:
    timed = Timed()
    rows = [timed.run(3), timed.run(5, HOST)]
    timed.device.finish()

    assert timed.times.read(1)
    assert rows == [[0, 3 * MS], [0, 0]]


def test_without_an_operator_on_the_device_nothing_is_known() -> None:
    timed = Timed()
    timed.run(5, HOST)

    assert timed.times.have_passed()
    assert not timed.times.read(1)


def on_another(timed: Timed) -> None:
    timed.run(5, SimpleNamespace(device=SimpleNamespace(type="cuda", index=1)))


def in_a_graph(timed: Timed) -> None:
    timed.device.is_capturing = True
    timed.run(5)


def failing(timed: Timed) -> None:
    def fail() -> Event:
        raise RuntimeError("CUDA error")

    timed.times.new_event = fail
    timed.run(5)


@pytest.mark.parametrize("go_wrong", [on_another, in_a_graph, failing])
def test_where_one_operator_cannot_be_timed_none_is(go_wrong: Callable[[Timed], None]) -> None:
    timed = Timed()
    row = timed.run(3)
    go_wrong(timed)
    timed.run(4)
    timed.device.finish()

    assert not timed.times.read(1)
    assert row == [0, 0]
