"""Collections of garbage: counted by the process, taken by the next update."""

from __future__ import annotations

import gc
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from steptime.guest.timeline.gc_pauses import MAX_LONG, Pauses
from steptime.guest.timeline.journal import Journal
from steptime.guest.timeline.recorder import Recorder
from steptime.guest.timeline.thread_timeline import ThreadTimeline
from steptime.guest.watchers.pause_watcher import PauseWatcher
from steptime.record.buckets import GC_NS, GC_PAUSES


class Clock:
    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def pauses(clock: Clock) -> Pauses:
    return Pauses(clock=clock)


def collect(pauses: Pauses, clock: Clock, ns: int, *, generation: int = 0) -> None:
    pauses.note("start", {})
    clock.now += ns
    pauses.note("stop", {"generation": generation})


def test_collections_are_taken_once(pauses: Pauses, clock: Clock) -> None:
    collect(pauses, clock, 100)
    clock.now += 1000
    collect(pauses, clock, 20, generation=2)
    assert pauses.take() == (2, 120, 1)
    assert pauses.take() == (0, 0, 0)
    collect(pauses, clock, 3)
    assert pauses.take() == (1, 3, 0)


def test_a_collection_whose_start_was_not_seen_counts_for_nothing(
    pauses: Pauses, clock: Clock
) -> None:
    clock.now = 10**12
    pauses.note("stop", {})
    assert pauses.take() == (0, 0, 0)


def test_whoever_takes_while_another_thread_does_goes_on_without(
    pauses: Pauses, clock: Clock
) -> None:
    collect(pauses, clock, 100)
    with pauses.lock:
        assert pauses.take() == (0, 0, 0)
    assert pauses.take() == (1, 100, 0)


def test_many_threads_together_take_each_collection_once(pauses: Pauses, clock: Clock) -> None:
    taken: list[tuple[int, ...]] = []
    stop = threading.Event()

    def take() -> None:
        while not stop.is_set():
            taken.append(pauses.take())

    threads = [threading.Thread(target=take) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(2000):
        collect(pauses, clock, 7)
    stop.set()
    for thread in threads:
        thread.join()
    taken.append(pauses.take())
    assert [sum(column) for column in zip(*taken, strict=True)] == [2000, 14_000, 0]


# -- the long ones


def test_a_long_collection_is_told_with_its_time_and_a_short_one_is_not(sink: Sink) -> None:
    pauses, zero_ns = sink.pauses, sink.zero_ns
    clock = pauses.clock
    assert isinstance(clock, Clock)
    clock.now = zero_ns + 70
    for ns in (999_999, 3_000_000):
        pauses.note("start", {"generation": 2})
        clock.now += ns
        pauses.note("stop", {"generation": 2})
    watcher = PauseWatcher(sink)
    line = json.loads(watcher.poll(0, is_last=False))
    assert line == {"k": "gc", "rows": [[70 + 999_999, 3_000_000, 2]]}
    assert watcher.poll(0, is_last=False) == ""


def test_a_script_that_always_collects_is_told_of_longer_and_longer_ones(
    pauses: Pauses, clock: Clock
) -> None:
    for _ in range(MAX_LONG + 7):
        collect(pauses, clock, 1_500_000)
    assert len(pauses.take_long()) == MAX_LONG
    for ns in (1_500_000, 2_500_000):
        collect(pauses, clock, ns)
    assert [ns for _, ns, _ in pauses.take_long()] == [2_500_000]


def test_a_long_collection_before_the_first_update_is_no_steps(sink: Sink, clock: Clock) -> None:
    journal, optimizer = make_journal(sink, clock), Optimizer()
    collect(sink.pauses, clock, 5_000_000)
    step(journal, optimizer)
    collect(sink.pauses, clock, 6_000_000)
    assert [ns for _, ns, _ in sink.pauses.take_long()] == [6_000_000]


@pytest.fixture
def watching() -> Iterator[Pauses]:
    pauses = Pauses()
    pauses.watch(SimpleNamespace(__file__="/packages/torch/__init__.py"))
    yield pauses
    if pauses.note in gc.callbacks:
        gc.callbacks.remove(pauses.note)


def test_python_tells_of_its_collections(watching: Pauses) -> None:
    gc.collect()
    num, ns, full = watching.take()
    assert num >= full >= 1  # `gc.collect` goes through all objects
    assert ns > 0


class OddError(BaseException):
    """Neither an error nor an interrupt."""


@pytest.mark.parametrize("kind", [ValueError, OddError])
def test_a_failure_of_ours_in_a_collection_is_told(sink: Sink, kind: type[BaseException]) -> None:
    def fail() -> int:
        raise kind("ours")

    sink.pauses.clock = fail
    sink.pauses.watch(SimpleNamespace(__file__="/packages/torch/__init__.py"))
    try:
        gc.collect()
    finally:
        sink.pauses.unwatch()
    watcher = PauseWatcher(sink)
    with pytest.raises(kind, match="ours"):
        watcher.poll(0, is_last=False)
    assert watcher.poll(0, is_last=False) == ""


def test_a_script_that_clears_the_callbacks_is_left_alone(watching: Pauses) -> None:
    watching.take()
    theirs = gc.callbacks[:]
    try:
        gc.callbacks.clear()
        gc.collect()
        assert watching.take() == (0, 0, 0)
        assert gc.callbacks == []
    finally:
        gc.callbacks[:] = theirs


# -- in the updates


class Sink(Recorder):
    """A recorder that keeps what it is handed."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        super().__init__(str(folder), lambda: {"rank": 0})
        self.pauses.clock = clock
        self.taken: list[tuple[int, int]] = []

    def add(self, timeline: ThreadTimeline, optimizer: int, skipped: int | None) -> None:
        self.taken.append((timeline.wall[GC_PAUSES], timeline.wall[GC_NS]))
        super().add(timeline, optimizer, skipped)


class Optimizer:
    """Something that steps."""


@pytest.fixture
def sink(tmp_path: Path, clock: Clock) -> Sink:
    return Sink(tmp_path, clock)


def make_journal(sink: Sink, clock: Clock) -> Journal:
    return Journal(sink, clock=clock, cpu_clock=clock)


def step(journal: Journal, optimizer: Optimizer) -> None:
    journal.enter_optimizer(has_closure=False)
    journal.leave_optimizer(optimizer, 0)


def test_the_update_that_ends_next_takes_them_whatever_its_thread(sink: Sink, clock: Clock) -> None:
    first, second, optimizer = make_journal(sink, clock), make_journal(sink, clock), Optimizer()
    step(first, optimizer)
    step(second, optimizer)
    collect(sink.pauses, clock, 50)
    step(second, optimizer)
    step(first, optimizer)
    second.replay()
    first.replay()
    assert sink.taken == [(0, 0), (1, 50), (0, 0), (0, 0)]


def test_what_was_collected_before_the_first_update_is_no_steps(sink: Sink, clock: Clock) -> None:
    journal, optimizer = make_journal(sink, clock), Optimizer()
    collect(sink.pauses, clock, 50)
    step(journal, optimizer)
    journal.replay()
    assert sink.taken == [(0, 0)]


def test_a_new_process_has_had_no_collection(sink: Sink, clock: Clock) -> None:
    collect(sink.pauses, clock, 50)
    sink.pauses.note("start", {})
    sink.reset()
    sink.pauses.note("stop", {})
    assert sink.pauses.take() == (0, 0, 0)
