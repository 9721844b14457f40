"""Where a step ends when several optimizers take turns."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptime.guest.timeline.cycle import MAX_PERIOD, PATIENCE, RECENT, Cycle
from steptime.record.places import BY_HAND


def ends(optimizers: list[int]) -> list[int]:
    """The updates, from 1, after which a step ends."""
    cycle = Cycle()
    return [number for number, one in enumerate(optimizers, 1) if cycle.add(one)]


def test_one_optimizer_ends_a_step_each_time() -> None:
    assert ends([0] * 6) == [2, 3, 4, 5, 6]


def test_two_that_alternate_end_one_step_together() -> None:
    assert ends([0, 1] * 4) == [4, 6, 8]


def test_a_critic_that_steps_five_times_makes_a_step_of_six() -> None:
    piece = [0] * 5 + [1]
    assert ends(piece * 4)[-2:] == [18, 24]
    assert not [end for end in ends(piece * 4) if end > 12 and end % 6]


def test_an_order_that_changes_is_learned_anew() -> None:
    cycle = Cycle()
    for one in [0] * 10:
        cycle.add(one)
    before = cycle.generation
    found = [cycle.add(one) for one in [1, 0] * 6]

    assert cycle.generation > before
    assert found[-4:] in ([False, True, False, True], [True, False, True, False])


def test_backward_calls_before_the_first_step_are_forgotten() -> None:
    assert ends([BY_HAND, BY_HAND, 0, 1, 0, 1, 0, 1]) == [2, 6, 8]


def test_without_any_order_each_update_is_a_step_after_a_while() -> None:
    disorder = [(n * n) % 7 % 3 if n % 11 else n % 5 for n in range(2 * PATIENCE)]
    disorder = [one + (n if n % 13 == 0 else 0) for n, one in enumerate(disorder)]
    cycle = Cycle()
    found = [cycle.add(one) for one in disorder]

    assert all(found[-20:])


@pytest.mark.parametrize(
    ("optimizers", "late"),
    [
        pytest.param([0] * 150 + [1] * 30 + [0] * 100, {151, 152, 153}, id="one after the other"),
        pytest.param(([0] * 6 + [1] * 4) * 12, {7, 8, 9}, id="in turns"),
    ],
)
def test_loops_have_a_step_for_each_update(optimizers: list[int], late: set[int]) -> None:
    cycle = Cycle(tells_loops=True)
    ended = {number for number, one in enumerate(optimizers, 1) if cycle.add(one)}

    assert set(range(1, len(optimizers) + 1)) - ended == {1} | late


def test_a_critic_is_no_loop_of_its_own() -> None:
    cycle = Cycle(tells_loops=True)
    piece = [0] * 5 + [1]
    assert [n for n, one in enumerate(piece * 4, 1) if cycle.add(one)][-2:] == [18, 24]


@given(
    st.lists(st.integers(0, 2), min_size=1, max_size=MAX_PERIOD // 2),
    st.lists(st.integers(0, 2), max_size=20),
)
def test_any_order_that_repeats_is_found(piece: list[int], before: list[int]) -> None:
    cycle = Cycle()
    for one in before + piece * (1 + 2 * RECENT // len(piece)):
        cycle.add(one)
    found = [cycle.add(one) for one in piece * 3]
    steps = [number for number, is_end in enumerate(found) if is_end]

    assert steps
    assert {b - a for a, b in pairwise(steps)} <= {cycle.period}
    assert len(piece) % cycle.period == 0


def test_the_next_step_begins_where_the_order_says() -> None:
    cycle = Cycle()
    for one in [0, 1] * 4:
        cycle.add(one)

    assert [cycle.first_step_at(number) for number in (8, 9, 10)] == [8, 10, 10]
