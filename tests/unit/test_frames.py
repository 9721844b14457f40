"""What lies between two moments of the user's code, by the frames that were running."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from steptime.guest.sites.file_owners import FileOwners
from steptime.guest.sites.frames import Frames, Place, Stack, innermost


class Probe:
    """Called where a marker would be; keeps the lines from the call before to this one."""

    def __init__(self) -> None:
        torch = SimpleNamespace(__file__="/nowhere/torch/__init__.py")
        self.frames = Frames(FileOwners(torch))
        self.before: Stack = ()
        self.found: list[Place | None] = []

    def __call__(self) -> None:
        stack = self.frames.stack(sys._getframe(1))
        self.found.append(self.frames.between(self.before, stack))
        self.before = stack

    def lines(self, function: object) -> list[tuple[int, int]]:
        """First and last lines after the first call, counted from the function's own."""
        zero = function.__code__.co_firstlineno  # type: ignore[attr-defined]
        return [(first - zero, last - zero) for _, first, last in filter(None, self.found[1:])]


@pytest.fixture
def probe() -> Probe:
    return Probe()


def test_two_moments_in_one_function_give_its_lines(probe: Probe) -> None:
    def work() -> None:
        probe()
        sum(range(3))
        probe()

    work()
    assert probe.lines(work) == [(2, 3)]


def test_a_call_between_is_the_line_that_made_it(probe: Probe) -> None:
    def inner() -> None:
        probe()

    def work() -> None:
        inner()
        sum(range(3))
        inner()

    work()
    assert probe.lines(work) == [(1, 3)]


def test_what_follows_a_call_is_not_blamed_on_its_line(probe: Probe) -> None:
    def work() -> object:
        probe()
        sum(range(3))
        sum(range(4))
        kept = probe()
        probe()
        return kept, sum(range(3)), probe()

    work()
    # A result that is kept, and a second call on the line, are work on the line itself.
    assert probe.lines(work) == [(2, 4), (4, 5), (5, 6)]


def test_the_end_of_a_loop_leads_to_its_head(probe: Probe) -> None:
    class Batches:
        left = 2

        def __iter__(self) -> Batches:
            return self

        def __next__(self) -> None:
            probe()
            self.left -= 1
            if self.left < 0:
                raise StopIteration

    def work() -> None:
        for _ in Batches():
            probe()
            sum(range(3))
            sum(range(4))

    work()
    assert probe.lines(work) == [(1, 2), (3, 4), (1, 2), (3, 4)]


def test_the_head_of_a_loop_leads_to_its_first_marker(probe: Probe) -> None:
    def work() -> None:
        for _ in range(2):
            sum(range(3))
            probe()
            sum(range(3))
            probe()

    work()
    assert probe.lines(work) == [(4, 5), (1, 3), (4, 5)]


def test_work_on_both_sides_of_a_loops_end_is_told_as_going_around(probe: Probe) -> None:
    def work() -> None:
        for _ in range(2):
            sum(range(3))
            probe()
            sum(range(3))
            probe()
            sum(range(3))

    work()
    assert probe.lines(work) == [(4, 5), (6, 3), (4, 5)]


def test_a_function_called_anew_is_the_line_that_calls_it(probe: Probe) -> None:
    def step() -> None:
        probe()
        sum(range(3))
        probe()

    def work() -> None:
        for _ in range(2):
            step()

    work()
    inside, between, _ = probe.found[1:]
    assert inside is not None
    assert between is not None
    zero = work.__code__.co_firstlineno
    assert (between[1] - zero, between[2] - zero) == (2, 2)


def test_a_while_loop_with_handlers_goes_around(probe: Probe) -> None:
    def work() -> None:
        left = 2
        while left:
            probe()
            try:
                left -= 1
                probe()
                left / 0
            except ZeroDivisionError:
                continue
        sum(range(3))

    work()
    assert probe.lines(work)[1][1] <= 9


def test_moments_without_a_function_in_common_have_no_lines(probe: Probe) -> None:
    probe()
    assert probe.frames.between((), probe.before) is None
    assert innermost(()) is None


def test_no_frame_is_kept(probe: Probe) -> None:
    class Local:
        alive = 0

        def __init__(self) -> None:
            Local.alive += 1

        def __del__(self) -> None:
            Local.alive -= 1

    def work() -> None:
        held = Local()
        probe()
        assert held

    work()
    assert Local.alive == 0
