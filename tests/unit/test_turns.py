"""Rows by hand, rows of wrappers and rows of loop after loop make the steps that were meant."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from steptime.measure.steps.rounds import MIN_BY_HAND, Round, Rows, fold_rounds, split_rounds
from steptime.record.places import BY_HAND

Facts = tuple[int, int, int]
"""Optimizer, backward calls, inner steps of a row."""

BACKWARD: Facts = (BY_HAND, 1, 0)
GRAD: Facts = (BY_HAND, 0, 0)


def rounds_of(facts: Sequence[Facts]) -> list[Round]:
    optimizers, backwards, inner = zip(*facts, strict=True) if facts else ((), (), ())
    return fold_rounds(Rows(optimizers=optimizers, backwards=backwards, inner_steps=inner))


def optimizers_of(*facts: Facts) -> list[tuple[int, ...]]:
    return [made.optimizers for made in rounds_of(facts)]


def backwards_of(*facts: Facts) -> list[int]:
    return [
        sum(backwards for _, backwards, _ in facts[made.begin : made.end])
        for made in rounds_of(facts)
    ]


# -- by hand


def test_where_no_optimizer_ever_steps_each_backward_call_is_a_step() -> None:
    rounds = rounds_of([BACKWARD] * 3)

    assert [made.optimizers for made in rounds] == [(BY_HAND,)] * 3
    assert [made.num_updates for made in rounds] == [0] * 3


def test_gradients_asked_for_end_steps_only_where_there_is_no_backward_call() -> None:
    assert len(optimizers_of(*[GRAD] * 3)) == 3
    assert backwards_of(GRAD, GRAD, BACKWARD, BACKWARD) == [1, 1]


def test_the_micro_batches_before_the_first_update_belong_to_it() -> None:
    assert backwards_of(*[BACKWARD] * 4, (0, 0, 0), (0, 4, 0), (0, 2, 0)) == [4, 4, 2]


def test_the_first_round_of_a_gan_is_a_round_like_all() -> None:
    first = [BACKWARD, BACKWARD, (0, 0, 0), (1, 1, 0)]
    second = [(0, 2, 0), (1, 1, 0)]

    assert optimizers_of(*first, *second) == [(0, 1), (0, 1)]
    assert backwards_of(*first, *second) == [3, 3]


def test_the_backward_calls_before_the_only_update_are_all_its_own() -> None:
    assert backwards_of(*[BACKWARD] * 40, (0, 0, 0)) == [40]


def test_a_loop_by_hand_before_an_optimizers_loop_keeps_its_steps() -> None:
    found = optimizers_of(*[BACKWARD] * 40, BACKWARD, (0, 0, 0), *[(0, 1, 0)] * 9)

    assert found == [(BY_HAND,)] * 40 + [(0,)] * 10


def test_a_few_backward_calls_before_the_first_update_are_no_loop() -> None:
    checks = [BACKWARD] * (MIN_BY_HAND - 1)

    assert len(optimizers_of(*checks, BACKWARD, (0, 0, 0), (0, 1, 0))) == 2


def test_a_closure_of_its_own_backward_calls_asks_for_none_before() -> None:
    assert backwards_of(*[BACKWARD] * 20, (0, 9, 0), (0, 8, 0)) == [1] * 20 + [9, 8]


# -- wrappers


def test_a_step_that_let_nothing_through_belongs_to_the_next_one_that_did() -> None:
    first = [BACKWARD, (0, 0, 0), (0, 1, 0), (0, 1, 0), (0, 1, 1)]

    assert optimizers_of(*first, (0, 4, 1)) == [(0,), (0,)]
    assert backwards_of(*first, (0, 4, 1)) == [4, 4]


def test_a_wrapper_that_always_steps_is_an_optimizer_like_any() -> None:
    assert backwards_of((0, 1, 1), (0, 1, 1), (0, 1, 1)) == [1, 1, 1]


def test_a_step_that_let_nothing_through_at_the_end_is_no_step() -> None:
    assert optimizers_of((0, 1, 1), (0, 1, 0)) == [(0,)]


# -- loop after loop


def test_another_loop_begins_a_round_of_its_own() -> None:
    assert optimizers_of(*[(n // 3, 1, 0) for n in range(9)]) == [(n // 3,) for n in range(9)]


def test_an_optimizer_that_joins_those_that_go_on_begins_none() -> None:
    critic, both = [(0, 1, 0)] * 3, [(0, 1, 0), (1, 1, 0)]

    assert optimizers_of(*critic, *both, *both) == [(0,), (0,), (0,), (0, 1), (0, 1)]


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(2, 5)), min_size=1, max_size=6))
def test_any_loops_one_after_another_have_all_their_steps(loops: list[tuple[int, int]]) -> None:
    facts: list[Facts] = []
    expected: list[tuple[int, ...]] = []
    first = 0
    for num_optimizers, num_rounds in loops:
        optimizers = tuple(range(first, first + num_optimizers))
        expected += [optimizers] * num_rounds
        facts += [(optimizer, 1, 0) for optimizer in optimizers] * num_rounds
        first += num_optimizers

    assert optimizers_of(*facts) == expected


@given(
    micro_batches=st.integers(1, 6),
    num_by_hand=st.sampled_from([0, MIN_BY_HAND, 33]),
    passes_every=st.integers(1, 4),
    num_steps=st.integers(2, 9),
)
def test_any_accumulation_behind_a_wrapper_after_a_loop_by_hand_is_told_apart(
    micro_batches: int, num_by_hand: int, passes_every: int, num_steps: int
) -> None:
    inner = int(passes_every > 1)
    first = [*[BACKWARD] * micro_batches, (0, 0, 0)]
    first += [(0, micro_batches, 0)] * (passes_every - 2) if inner else []
    first += [(0, micro_batches, 1)] if inner else []
    # From here the guest knows the wrapper, and a row is all that it held back.
    later = [(0, micro_batches * passes_every, inner)] * (num_steps - 1)

    found = backwards_of(*[BACKWARD] * num_by_hand, *first, *later)

    if not inner or not num_by_hand:
        assert found == [1] * num_by_hand + [micro_batches * passes_every] * num_steps
    assert sum(found) == num_by_hand + micro_batches * passes_every * num_steps
    assert found[-num_steps + 1 :] == [micro_batches * passes_every] * (num_steps - 1)


# -- anything

facts_of_any_order = st.lists(
    st.tuples(st.integers(-1, 2), st.integers(0, 3), st.integers(0, 1)), max_size=40
)


@settings(max_examples=300)
@given(facts_of_any_order)
def test_any_interleaving_keeps_rows_once_and_in_order(facts: list[Facts]) -> None:
    places = [place for made in rounds_of(facts) for place in range(made.begin, made.end)]

    assert places == list(range(len(places)))
    wrappers = {optimizer for optimizer, _, inner in facts if inner}
    for optimizer, _, inner in facts[len(places) :]:  # nothing but what let nothing through
        assert optimizer == BY_HAND or (optimizer in wrappers and not inner)


@settings(max_examples=300)
@given(facts_of_any_order)
def test_any_interleaving_has_an_update_for_each_row_that_is_one(facts: list[Facts]) -> None:
    rounds = rounds_of(facts)

    wrappers = {optimizer for optimizer, _, inner in facts if inner}
    real = [o for o, _, inner in facts if o != BY_HAND and (inner or o not in wrappers)]
    assert [o for made in rounds for o in made.optimizers if o != BY_HAND] == real
    assert all(len(set(made.optimizers)) == len(made.optimizers) for made in rounds)


@given(st.lists(st.integers(0, 2), max_size=40))
def test_without_rarities_the_rounds_are_those_of_the_guest(optimizers: list[int]) -> None:
    every = (0, 1, 2, *optimizers)

    rounds = rounds_of([(optimizer, 1, 0) for optimizer in every])

    assert [(made.begin, made.end) for made in rounds] == split_rounds(every)
