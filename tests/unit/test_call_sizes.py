"""The sizes of an update's calls, and when updates share them."""

from __future__ import annotations

from typing import Any

from steptime.guest.timeline.call_sizes import MAX_SIZE, sums_of
from steptime.guest.timeline.journal import Journal
from steptime.guest.timeline.recorder import Recorder


def make_journal() -> Journal:
    recorder = Recorder("", lambda: {"rank": 0})
    recorder.path = "/nowhere"
    return Journal(recorder, clock=lambda: 0, cpu_clock=lambda: 0)


def end_update(journal: Journal, *shapes: Any, num_nodes: int = 0) -> list[int]:
    journal.shapes += shapes
    journal.num_nodes += num_nodes
    journal.skip_update(end_update)
    return journal.sizes


def test_shapes_of_calls_are_summed() -> None:
    assert sums_of([(3, 4), (2, 5), 7], 9, 11) == [5, 22, 48 + 50, 9, 7, 11, 12]
    assert sums_of([()]) == [1, 1, 1, 0, 0, 0, 1]
    assert sums_of([(0, 5)]) == [0] * 7
    assert sums_of([(MAX_SIZE, 2)])[1] == MAX_SIZE


def test_sums_so_far_are_added() -> None:
    shapes = [(3, 4), (2, 5), 7]

    assert sums_of([sums_of(shapes[:2]), *shapes[2:]]) == sums_of(shapes)


def test_alike_updates_share_their_sizes() -> None:
    journal = make_journal()
    first = end_update(journal, (3, 4), num_nodes=2)

    assert first == [3, 12, 48, 2, 0, 0, 12]
    assert end_update(journal, (3, 4), num_nodes=2) is first
    assert end_update(journal, (3, 4), num_nodes=3) == [3, 12, 48, 3, 0, 0, 12]
    assert end_update(journal, 12, num_nodes=3) == [0, 0, 0, 3, 12, 0, 0]


def test_trained_weights_belong_to_the_update_that_ended_and_to_later_ones() -> None:
    journal = make_journal()
    first = end_update(journal, (3, 4))
    second = end_update(journal, (3, 4))
    told = journal.set_trained(20)

    assert (first, second) == ([3, 12, 48, 0, 0, 0, 12],) * 2
    assert told == [3, 12, 48, 0, 0, 20, 12]
    assert [end[3] for end in journal.ends] == [first, told]
    assert end_update(journal, (3, 4)) is told
