"""Sites: the pieces of a window's time by name and place; spans by place over the whole run."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from steptime.guest.sites.file_owners import FileOwners
from steptime.guest.sites.frames import Frames, Place, Spot, Stack, innermost
from steptime.guest.sites.site_book import SiteBook, SpanSites, TimedMarker, spans_of
from steptime.guest.timeline.thread_timeline import ThreadTimeline
from steptime.record.buckets import (
    BACKWARD,
    EPOCH_START,
    EVALUATION,
    INPUT_WAIT,
    LOSS,
    SYNC,
)
from unit.guest_loop import Loop

FRAMES = Frames(FileOwners(SimpleNamespace(__file__="/nowhere/torch/__init__.py")))
FILE = "train.py"


def at(line: int) -> Stack:
    """The main function at a line; lines are offsets too, and it has no loop."""
    return (Spot(1, at.__code__, 2 * line, line, FILE),)


class Window:
    """Marks in the making, on a clock advanced by hand."""

    def __init__(self) -> None:
        self.now = 0
        self.marks: list[TimedMarker] = []

    def mark(self, act: Callable[[ThreadTimeline], None], line: int, after: int = 0) -> None:
        self.now += after
        self.marks.append(TimedMarker(act, self.now, at(line)))

    def count(self, bucket: int, line: int) -> None:
        self.marks.append(
            TimedMarker(lambda t: t.enter(bucket), self.now, at(line), is_counted=True)
        )
        self.marks.append(TimedMarker(ThreadTimeline.leave, self.now, at(line)))

    def step(self) -> None:
        self.mark(lambda t: t.enter_input(INPUT_WAIT), 2, after=1)
        self.mark(ThreadTimeline.leave_input, 2, after=10)
        self.mark(ThreadTimeline.enter_forward, 5, after=30)
        self.mark(lambda t: t.leave_forward(loss_inside=False), 5, after=100)
        self.mark(ThreadTimeline.enter_backward, 8, after=7)
        self.mark(ThreadTimeline.leave_backward, 8, after=200)
        self.update()

    def update(self) -> None:
        self.mark(lambda t: t.enter_optimizer(has_closure=False), 10, after=4)
        self.mark(lambda t: t.leave_optimizer(0, 0), 10, after=50)

    def sites(self) -> dict[tuple[str, int, int], tuple[int, int | None]]:
        book = SiteBook(FRAMES)
        book.fold(0, at(1), self.marks)
        return {(what, a, b): (calls, ns) for what, _, a, b, calls, ns in book.sites()}


@pytest.fixture
def window() -> Window:
    return Window()


def test_each_piece_of_a_step_has_its_name_and_lines(window: Window) -> None:
    window.step()

    assert window.sites() == {
        ("other", 1, 2): (1, 1),
        ("input_wait", 2, 2): (1, 10),
        ("other", 2, 5): (1, 30),
        ("forward", 5, 5): (1, 100),
        ("loss", 5, 8): (1, 7),
        ("backward", 8, 8): (1, 200),
        ("gradient_processing", 8, 10): (1, 4),
        ("optimizer", 10, 10): (1, 50),
    }


def test_a_marker_inside_another_is_one_call_and_takes_its_time_out(window: Window) -> None:
    window.mark(lambda t: t.enter(LOSS), 3, after=1)
    window.mark(lambda t: t.enter(SYNC), 4, after=5)
    window.mark(ThreadTimeline.leave, 4, after=6)
    window.mark(ThreadTimeline.leave, 3, after=7)
    window.update()
    found = window.sites()

    assert found["loss", 3, 3] == (1, 12)
    assert found["sync", 4, 4] == (1, 6)


def test_a_counted_call_has_no_time_and_divides_what_it_stands_in(window: Window) -> None:
    window.mark(lambda t: t.enter(LOSS), 2, after=1)
    window.mark(ThreadTimeline.leave, 2, after=1)
    window.now += 5
    window.count(SYNC, 4)
    window.count(SYNC, 4)
    window.now += 6
    window.update()
    found = window.sites()

    assert found["sync", 4, 4] == (2, None)
    assert found["other", 2, 4] == (1, 5)
    assert found["other", 4, 10] == (1, 10)


def test_a_copy_that_moved_nothing_gives_its_time_to_what_was_around(window: Window) -> None:
    window.mark(lambda t: t.enter(BACKWARD), 3, after=1)
    window.mark(lambda t: t.enter(SYNC), 3, after=5)
    window.mark(ThreadTimeline.leave_unmoved, 3, after=6)
    window.mark(ThreadTimeline.leave, 3, after=7)
    window.update()
    found = window.sites()

    assert found["backward", 3, 3] == (1, 18)
    assert not [what for what, *_ in found if what == "sync"]


def test_an_evaluation_is_no_site_of_a_step(window: Window) -> None:
    window.mark(lambda t: t.enter_input(INPUT_WAIT), 2, after=1)
    window.mark(ThreadTimeline.leave_input, 2, after=10)
    window.mark(ThreadTimeline.enter_evaluation, 5, after=30)
    window.mark(ThreadTimeline.leave_evaluation, 5, after=100)
    window.update()

    assert set(window.sites()) == {("other", 5, 10), ("optimizer", 10, 10)}


def test_an_update_that_did_not_end_is_left_out(window: Window) -> None:
    window.step()
    window.mark(lambda t: t.enter(BACKWARD), 8, after=1)
    window.mark(ThreadTimeline.leave, 8, after=1_000)

    assert window.sites()["backward", 8, 8] == (1, 200)


def test_a_closure_is_told_by_what_it_does(window: Window) -> None:
    window.mark(lambda t: t.enter_optimizer(has_closure=True), 10, after=4)
    window.mark(ThreadTimeline.enter_backward, 8, after=3)
    window.mark(ThreadTimeline.leave_backward, 8, after=200)
    window.mark(lambda t: t.leave_optimizer(0, 0), 10, after=50)
    found = window.sites()

    assert found["backward", 8, 8] == (1, 200)
    assert sum(ns or 0 for _, ns in found.values()) == 257


# -- spans


class Walker:
    """Gives the places it is told instead of walking."""

    def __init__(self) -> None:
        self.line = 1

    def place(self, frame: object) -> Place:
        return FILE, self.line, self.line


def spans(loop: Loop) -> tuple[Walker, SpanSites]:
    walker = Walker()
    book = SpanSites(walker)  # type: ignore[arg-type]
    loop.timeline.spans = book
    return walker, book


def test_a_span_has_all_the_time_that_its_bucket_took() -> None:
    loop = Loop()
    loop.start()
    _, book = spans(loop)
    for _ in range(2):
        loop.spend(30)
        loop.batch(5)
        book.walk(EVALUATION, None)
        loop.evaluate(100)
    loop.step()

    ((what, _, line, _, calls, ns),) = spans_of([book])
    assert (what, line, calls) == ("evaluation", 1, 2)
    assert ns == loop.update.wall["evaluation"] == 270


def test_each_evaluation_counts_at_its_own_place() -> None:
    loop = Loop()
    loop.start()
    walker, book = spans(loop)
    for number in range(50):
        walker.line = 1 + number // 45
        book.walk(EVALUATION, None)
        loop.evaluate(10)

    assert [site[2:5] for site in spans_of([book])] == [[1, 1, 45], [2, 2, 5]]
    assert [site[2:] for site in spans_of([book, book])] == [[1, 1, 90, 900], [2, 2, 10, 100]]


def test_a_place_is_the_innermost_of_the_stack() -> None:
    frame = sys._getframe()
    assert FRAMES.place(frame) == innermost(FRAMES.stack(frame))
    assert FRAMES.place(None) is None


def test_the_first_batch_of_an_epoch_is_part_of_its_start() -> None:
    loop = Loop()
    loop.start()
    _, book = spans(loop)
    for _ in range(2):
        book.walk(EPOCH_START, None)
        with loop.span(EPOCH_START):
            loop.spend(7)
        book.walk(EPOCH_START, None)
        loop.batch(5, spins_up=True)
        loop.step()

    assert [site[4:] for site in spans_of([book])] == [[2, 24]]
