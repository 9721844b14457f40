"""What is concluded from the weights and the inputs of several ranks, and where nothing is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from steptime.measure.sense.find_replicas import find_drift, find_same_inputs
from steptime.measure.sense.sense_record import InputsSeen, ReplicaSeen

GROUP = (0, 1)
START = (1.0, 2.0, 3.0)


def sample(n: int, *values: float, **changes: Any) -> ReplicaSeen:
    known: dict[str, Any] = {"n": n, "ranks": GROUP, "largest": 100, "moved": 4, "hooked": False}
    known |= {"written": False, "exchanges": 8, "local": 0, "values": values or START}
    return ReplicaSeen(**known | changes)


def rank(number: int, *samples: ReplicaSeen, inputs: InputsSeen | None = None) -> Any:
    """As much of a folded rank as is compared."""
    signals = SimpleNamespace(replicas=samples, rank_inputs=inputs)
    return SimpleNamespace(head=SimpleNamespace(rank=number), signals=signals)


def drifting(**changes: Any) -> list[Any]:
    """Two ranks that are equal up to the first update, and a fifth of the way apart at the end."""
    one = [sample(0), sample(1, 1.1, 2.0, 3.0), sample(2, 1.5, 2.0, 3.0), sample(4, 2.0, 2.0, 3.0)]
    other = [*one[:2], sample(2, 1.4, 2.0, 3.0), sample(4, 2.0, 2.2, 3.0, **changes)]
    return [rank(0, *one), rank(1, *other)]


def test_ranks_that_part_and_stay_apart_drift_from_the_first_sample_that_differs() -> None:
    found = find_drift(drifting(local=3))

    assert found is not None
    assert (found.ranks, found.first_update, found.num_updates) == (GROUP, 2, 4)
    assert found.difference == pytest.approx(0.2 / (1 + 0.2**2) ** 0.5)


def test_weights_that_differ_before_the_first_update_have_no_update_to_name() -> None:
    apart = [sample(0, 1.5, 2.0, 3.0), sample(1, 1.6, 2.0, 3.0)]
    found = find_drift([rank(0, sample(0), sample(1, 1.1, 2.0, 3.0)), rank(1, *apart)])

    assert found is not None
    assert found.first_update is None


@pytest.mark.parametrize(
    "changes",
    [
        {"hooked": True},
        {"written": True},
        {"moved": 100},
        {"moved": None},
        {"values": (2.0, 2.0, 3.0)},
        {"values": (2.0, 2.005, 3.0)},
        {"values": (2.0, 2.0)},
        {"ranks": (1, 2)},
        {"n": 3},
    ],
)
def test_where_weights_may_differ_or_agree_again_there_is_no_drift(changes: dict[str, Any]) -> None:
    ranks = drifting()
    last = sample(**{"n": 4, "values": (2.0, 2.2, 3.0), **changes})
    assert find_drift(ranks) is not None

    ranks[1].signals.replicas = (*ranks[1].signals.replicas[:3], last)

    assert find_drift(ranks) is None


def test_one_sample_that_differs_and_one_rank_are_too_few() -> None:
    ranks = drifting()

    assert find_drift(ranks[:1]) is None
    for one in ranks:
        one.signals.replicas = one.signals.replicas[:3]
    assert find_drift(ranks) is None


def inputs(*digests: str, talks: bool = False, ranks: tuple[int, ...] = GROUP) -> InputsSeen:
    return InputsSeen(ranks=ranks, digests=digests, talks=talks)


def test_ranks_with_the_same_inputs_are_named_and_the_others_are_not() -> None:
    seen = {0: "abcd", 1: "abce", 2: "abcd"}
    ranks = [rank(n, inputs=inputs(*text, ranks=(0, 1, 2))) for n, text in seen.items()]
    found = find_same_inputs(ranks)

    assert found is not None
    assert (found.ranks, found.num_calls) == ((0, 2), 4)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (inputs(*"abcd"), inputs(*"abdc")),
        (inputs(*"aaaa"), inputs(*"aaaa")),
        (inputs(*"abca"), inputs(*"abca")),
        (inputs(*"abcd", talks=True), inputs(*"abcd", talks=True)),
        (inputs(*"abcd", ranks=(0, 2)), inputs(*"abcd", ranks=(1, 3))),
        (inputs(*"abcd"), None),
    ],
)
def test_inputs_that_differ_or_repeat_or_are_shared_say_nothing(
    one: InputsSeen, other: InputsSeen | None
) -> None:
    assert find_same_inputs([rank(0, inputs=one), rank(1, inputs=other)]) is None
