"""How ranks lost each other, from made-up records: every kind, two to four ranks, and subgroups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from steptime.desync.find_desync import RankPlace, find_desync, find_differing_calls
from steptime.desync.recorded_calls import RankCalls, RankGroup, RecordedCall
from steptime.diagnose.ailments.ranks.desynced import describe_desync
from steptime.measure.values.desync import Desync

FIRST, SECOND, THIRD, ODD = "train.py:10", "train.py:11", "train.py:12", "train.py:20"
NUM_STEPS = 8


def world(num: int) -> RankGroup:
    return RankGroup(name="0", ranks=tuple(range(num)))


def call(
    operation: str, elements: int | None, where: str, group: RankGroup, **more: object
) -> RecordedCall:
    made = RecordedCall(
        serial=0, number=0, operation=operation, group=group, elements=elements, where=where
    )
    return replace(made, dtype="float32", **more)  # type: ignore[arg-type]


def step_of(group: RankGroup) -> list[RecordedCall]:
    """What every rank calls in a step."""
    return [
        call("all_reduce", 77, FIRST, group),
        call("broadcast", 50, SECOND, group),
        call("all_reduce", 50, THIRD, group),
    ]


def make_rank(
    rank: int, num: int, calls: Sequence[RecordedCall], *, is_open: bool = True
) -> RankCalls:
    """A rank that made these calls in order, and is in the last of them."""
    counts: dict[tuple[RankGroup, bool], int] = {}
    made = []
    for serial, one in enumerate(calls, start=1):
        key = (one.group, one.is_sent)
        counts[key] = counts.get(key, 0) + 1
        is_last = serial == len(calls)
        made.append(
            replace(
                one,
                serial=serial,
                number=counts[key],
                is_open=is_open and is_last and not one.waits_later,
            )
        )
    return RankCalls(rank=rank, world_size=num, calls=tuple(made))


def usual(num: int) -> list[RecordedCall]:
    return step_of(world(num)) * NUM_STEPS


def inside(num: int) -> list[RankPlace]:
    return [RankPlace(rank=rank, waits_in="collective") for rank in range(num)]


def lose(num: int, culprit: int, instead: Sequence[RecordedCall]) -> Desync:
    """All ranks come to the first call of a step; the culprit makes other calls instead."""
    group = world(num)
    ranks = [
        make_rank(rank, num, [*usual(num), *(instead if rank == culprit else step_of(group)[:1])])
        for rank in range(num)
    ]
    found = find_desync(ranks, inside(num))
    assert found is not None
    assert find_differing_calls(ranks) == (None if found.what == "group" else found)
    return found


RANKS = pytest.mark.parametrize(
    ("num", "culprit"), [(2, 1), (2, 0), (3, 1), (3, 0), (4, 3), (4, 2)]
)


@RANKS
def test_another_operation(num: int, culprit: int) -> None:
    found = lose(num, culprit, [call("barrier", None, ODD, world(num))])

    assert (found.what, found.culprits) == ("operation", (culprit,))
    assert found.others == tuple(rank for rank in range(num) if rank != culprit)
    assert found.called is not None
    assert (found.called.operation, found.called.number) == ("barrier", 25)
    assert found.expected is not None
    assert (found.expected.where, found.where) == (FIRST, ODD)


@RANKS
@pytest.mark.parametrize("where", [FIRST, ODD])
def test_another_size(num: int, culprit: int, where: str) -> None:
    found = lose(num, culprit, [call("all_reduce", 76, where, world(num))])

    assert (found.what, found.culprits, found.where) == ("shape", (culprit,), where)


@RANKS
def test_another_type(num: int, culprit: int) -> None:
    other = replace(call("all_reduce", 77, FIRST, world(num)), dtype="float64")
    found = lose(num, culprit, [other])

    assert (found.what, found.culprits) == ("shape", (culprit,))


@RANKS
def test_a_call_that_was_left_out_is_where_one_must_look(num: int, culprit: int) -> None:
    found = lose(num, culprit, step_of(world(num))[1:2])

    assert (found.what, found.culprits, found.where) == ("missing", (culprit,), FIRST)
    assert found.called is not None
    assert found.called.where == SECOND


@RANKS
def test_the_same_calls_in_another_order(num: int, culprit: int) -> None:
    swapped = replace(step_of(world(num))[1], where=ODD)
    found = lose(num, culprit, [swapped])

    assert (found.what, found.culprits, found.where) == ("order", (culprit,), ODD)


@RANKS
def test_calls_that_are_only_started_show_their_order_at_one_line(num: int, culprit: int) -> None:
    first, second = [
        call("all_reduce", size, FIRST, world(num), waits_later=True) for size in (77, 50)
    ]
    ranks = [
        make_rank(
            rank,
            num,
            [first, second] * NUM_STEPS + ([second, first] if rank == culprit else [first, second]),
        )
        for rank in range(num)
    ]

    found = find_desync(ranks, inside(num))

    assert found is not None
    assert (found.what, found.culprits) == ("order", (culprit,))


@RANKS
def test_another_group(num: int, culprit: int) -> None:
    beside = RankGroup(name="1", ranks=tuple(range(num)))
    found = lose(num, culprit, [call("all_reduce", 77, FIRST, beside)])

    assert (found.what, found.culprits) == ("group", (culprit,))


def away(num: int, culprit: int, place: RankPlace) -> Desync:
    """All ranks but one come to the first call of a step."""
    ranks = [
        make_rank(
            rank,
            num,
            [*usual(num), *([] if rank == culprit else step_of(world(num))[:1])],
            is_open=rank != culprit,
        )
        for rank in range(num)
    ]
    places = [place if one.rank == culprit else one for one in inside(num)]
    found = find_desync(ranks, places)
    assert found is not None
    assert find_differing_calls(ranks) is None
    return found


@RANKS
def test_a_rank_that_is_gone_is_where_its_last_call_was(num: int, culprit: int) -> None:
    found = away(num, culprit, RankPlace(rank=culprit, is_gone=True))

    assert (found.what, found.culprits, found.where) == ("left", (culprit,), THIRD)
    assert found.last is not None
    assert found.last.number == 24


@RANKS
@pytest.mark.parametrize(
    ("waits_in", "what"), [("input", "data"), ("lock", "python"), ("compute", "python")]
)
def test_a_rank_outside_of_a_collective(num: int, culprit: int, waits_in: str, what: str) -> None:
    found = away(num, culprit, RankPlace(rank=culprit, waits_in=waits_in, where="data.py:5"))

    assert (found.what, found.culprits, found.where) == (what, (culprit,), "data.py:5")
    assert found.expected is not None
    assert (found.expected.where, found.expected.number) == (FIRST, 25)


# -- subgroups


def test_in_a_chain_of_groups_the_last_one_is_waited_for() -> None:
    left, right = RankGroup(name="1", ranks=(0, 1)), RankGroup(name="2", ranks=(1, 2))
    ranks = [
        make_rank(0, 3, [*usual(3), call("all_reduce", 5, FIRST, left)]),
        make_rank(1, 3, [*usual(3), call("all_reduce", 5, SECOND, right)]),
        make_rank(2, 3, usual(3), is_open=False),
    ]
    places = [*inside(3)[:2], RankPlace(rank=2, waits_in="sleep", where="train.py:30")]

    found = find_desync(ranks, places)

    assert found is not None
    assert (found.what, found.culprits, found.where) == ("python", (2,), "train.py:30")
    assert found.expected is not None
    assert (found.expected.group, found.expected.where) == ((1, 2), SECOND)


def test_only_the_ranks_of_a_group_differ_in_it() -> None:
    pair, other = RankGroup(name="1", ranks=(2, 3)), RankGroup(name="2", ranks=(0, 1))
    tail = {
        0: call("all_reduce", 9, FIRST, other),
        1: call("all_reduce", 9, FIRST, other),
        2: call("all_reduce", 9, FIRST, pair),
        3: call("all_gather_into_tensor", 9, ODD, pair),
    }
    usual_pairs = [
        make_rank(rank, 4, [replace(tail[min(rank, 2)])] * 5 + [tail[rank]]) for rank in range(4)
    ]

    found = find_desync(usual_pairs, inside(4))

    assert found is not None
    assert (found.what, found.culprits, found.others) == ("operation", (3,), (2,))
    assert found.expected is not None
    assert found.expected.group == (2, 3)


def test_groups_in_another_order_keep_each_other_waiting() -> None:
    one, two = RankGroup(name="1", ranks=(0, 1)), RankGroup(name="2", ranks=(0, 1))
    a, b = call("all_reduce", 5, FIRST, one), call("all_reduce", 6, SECOND, two)
    ranks = [
        make_rank(0, 2, [a, b] * 5 + [a]),
        make_rank(1, 2, [a, b] * 5 + [replace(b, where=ODD)]),
    ]

    found = find_desync(ranks, inside(2))

    assert found is not None
    assert (found.what, found.culprits, found.where) == ("order", (1,), ODD)


# -- what is less plain


def test_a_call_left_out_among_equal_ones_shows_only_later() -> None:
    group = world(2)
    twins = [call("broadcast", 50, FIRST, group), call("broadcast", 50, SECOND, group)]
    step = [*twins, call("all_reduce", 77, THIRD, group)]
    ranks = [
        make_rank(0, 2, step * 4 + step[:2], is_open=False),
        make_rank(1, 2, step * 4 + step[1:]),
    ]
    # Rank 0 sent and went on: it is in the third call by now.
    ranks[0] = make_rank(0, 2, step * 5)

    found = find_desync(ranks, inside(2))

    assert found is not None
    assert (found.what, found.culprits, found.where) == ("missing", (1,), FIRST)


@pytest.mark.parametrize("culprit", [0, 1])
def test_of_two_ranks_the_one_that_did_what_is_unusual_left_a_call_out(culprit: int) -> None:
    group = world(2)
    twins = [call("broadcast", 50, FIRST, group), call("broadcast", 50, SECOND, group)]
    step = [call("all_reduce", 77, ODD, group), *twins, call("all_reduce", 50, THIRD, group)]
    ranks = [
        make_rank(rank, 2, [*step * 6, *([step[0], *step[2:]] if rank == culprit else step[:3])])
        for rank in range(2)
    ]

    found = find_desync(ranks, inside(2))

    assert found is not None
    assert (found.what, found.culprits) == ("missing", (culprit,))
    assert found.expected is not None
    assert (found.where, found.expected.where) == (FIRST, FIRST)


def test_a_call_left_out_among_equal_ones_shows_at_the_end() -> None:
    group = world(2)
    step = [call("all_reduce", 5, FIRST, group), call("all_reduce", 5, SECOND, group)]
    ranks = [
        make_rank(0, 2, step * 6),
        make_rank(1, 2, [*step * 3, *step[1:], *step * 2], is_open=False),
    ]
    places = [RankPlace(rank=0, waits_in="collective"), RankPlace(rank=1, is_gone=True)]

    found = find_desync(ranks, places)

    assert found is not None
    assert (found.what, found.culprits, found.where) == ("missing", (1,), FIRST)


def test_without_a_history_the_lowest_rank_is_the_model() -> None:
    ranks = [
        make_rank(0, 2, [call("barrier", None, ODD, world(2))]),
        make_rank(1, 2, [call("all_reduce", 77, FIRST, world(2))]),
    ]

    found = find_desync(ranks, inside(2))

    assert found is not None
    assert (found.what, found.culprits) == ("operation", (1,))


def test_ranks_that_call_alike_have_lost_nothing() -> None:
    ranks = [make_rank(rank, 2, usual(2)) for rank in range(2)]

    assert find_desync(ranks, inside(2)) is None


def test_uneven_gathers_and_calls_between_two_ranks_differ_by_right() -> None:
    group = world(2)
    uneven = [call("all_gather", size, FIRST, group) for size in (3, 9)]
    ranks = [
        make_rank(0, 2, [uneven[0], call("send", 4, SECOND, group), uneven[0]]),
        make_rank(1, 2, [uneven[1], call("recv", 4, THIRD, group), uneven[1]]),
    ]

    assert find_desync(ranks, inside(2)) is None


def test_old_calls_that_one_rank_has_written_over_are_left_out() -> None:
    whole = make_rank(0, 2, [*usual(2), step_of(world(2))[0]])
    other = make_rank(1, 2, [*usual(2), call("barrier", None, ODD, world(2))])

    found = find_desync([whole, replace(other, calls=other.calls[-7:])], inside(2))

    assert found is not None
    assert (found.what, found.culprits) == ("operation", (1,))


def test_gradients_that_are_reduced_in_backward_have_no_record() -> None:
    places = [
        RankPlace(rank=0, waits_in="collective", where="train.py:30", in_backward=True),
        RankPlace(rank=1, waits_in="collective", where=ODD),
    ]
    other = make_rank(1, 2, [call("barrier", None, ODD, world(2))])

    found = find_desync([other], places)

    assert found is not None
    assert (found.what, found.culprits, found.where) == ("operation", (1,), ODD)
    assert describe_desync(found) == (
        "rank 1 called barrier #1 at train.py:20 where rank 0 waited in backward at train.py:30"
    )


def test_a_rank_whose_stack_is_not_known_is_not_accused() -> None:
    ranks = [make_rank(0, 2, usual(2)), make_rank(1, 2, usual(2)[:-1], is_open=False)]
    places = [*inside(2)[:1], RankPlace(rank=1, waits_in="lock", is_seen=False)]

    assert find_desync(ranks, places) is None


# -- words


@pytest.mark.parametrize(
    ("instead", "says"),
    [
        (
            call("broadcast", 50, ODD, world(3)),
            "rank 1 called broadcast #25 of 50 float32 at train.py:20 where the others called "
            "all_reduce #25 of 77 float32 at train.py:10: the same calls in another order",
        ),
        (
            call("broadcast", 9, ODD, world(3)),
            "rank 1 called broadcast #25 of 9 float32 at train.py:20 where the others called "
            "all_reduce #25 of 77 float32 at train.py:10",
        ),
        (
            call("broadcast", 50, SECOND, world(3)),
            "rank 1 left out all_reduce #25 of 77 float32 at train.py:10, which the others called, "
            "and called broadcast #25 of 50 float32 at train.py:11",
        ),
        (
            call("all_reduce", 77, FIRST, RankGroup(name="1", ranks=(0, 1))),
            "rank 1 called all_reduce #1 of 77 float32 in the group of ranks 0, 1 at train.py:10 "
            "where the others called all_reduce #25 of 77 float32 at train.py:10",
        ),
    ],
)
def test_both_calls_are_told_with_size_and_line(instead: RecordedCall, says: str) -> None:
    assert describe_desync(lose(3, 1, [instead])) == says


@pytest.mark.parametrize(
    ("place", "says"),
    [
        (RankPlace(rank=1, is_gone=True), "rank 1 has left after all_reduce #24 of 50 float32 at "),
        (
            RankPlace(rank=1, waits_in="input", where="data.py:5"),
            "rank 1 waits for data at data.py:5 after all_reduce #24 of 50 float32 at ",
        ),
        (
            RankPlace(rank=1, waits_in="sleep", where="data.py:5"),
            "rank 1 is in Python at data.py:5 after all_reduce #24 of 50 float32 at ",
        ),
    ],
)
def test_a_rank_elsewhere_is_told_with_its_last_call(place: RankPlace, says: str) -> None:
    text = describe_desync(away(2, 1, place))

    assert text.startswith(says)
    assert text.endswith(
        "train.py:12, where rank 0 called all_reduce #25 of 77 float32 at train.py:10"
    )
