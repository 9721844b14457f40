"""The order of an epoch and its split over ranks: nothing twice, nothing lost, the same always."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptime.data.feed.epoch_order import EpochOrder, shuffled
from steptime.data.feed.rank_split import RankSplit
from steptime.errors import DataError


@given(st.integers(0, 300), st.integers(0, 2**64 - 1), st.integers(0, 2**40))
def test_an_order_has_every_sample_once_and_only_seed_and_epoch_decide(num, seed, epoch):
    order = shuffled(num, seed=seed, epoch=epoch)

    assert sorted(order.tolist()) == list(range(num))
    assert order.tolist() == shuffled(num, seed=seed, epoch=epoch).tolist()


def test_the_order_is_the_same_in_every_version():
    """These numbers are a promise: who resumes after an update goes on in the same order."""
    assert shuffled(10, seed=7, epoch=3).tolist() == [2, 5, 9, 7, 3, 0, 6, 8, 4, 1]


def test_seeds_and_epochs_give_other_orders():
    orders = {tuple(shuffled(50, seed=s, epoch=e)) for s in range(4) for e in range(4)}

    assert len(orders) == 16


def test_every_place_is_as_likely_for_every_sample():
    """Chi-square over 5 samples and 5 places: 16 degrees of freedom, 39.3 is one in a thousand."""
    orders = np.array([shuffled(5, seed=1, epoch=epoch) for epoch in range(4000)])
    counts = np.array([np.bincount(orders[:, place], minlength=5) for place in range(5)])

    assert ((counts - 800) ** 2 / 800).sum() < 39.3


def test_without_shuffling_the_order_is_that_of_the_source():
    order = EpochOrder(10, shuffle=False)

    assert order.take(5, 2, 6).tolist() == [2, 3, 4, 5]
    assert order.take(5, 8, 12).tolist() == [8, 9]


def test_a_seed_that_is_no_count_is_refused():
    with pytest.raises(ValueError, match="seed=-1"):
        EpochOrder(10, seed=-1)


@given(st.integers(1, 200), st.integers(1, 7), st.integers(1, 5), st.booleans())
def test_ranks_share_all_samples_in_as_many_steps_each(num, batch_size, world_size, drop_last):
    split = RankSplit(num, batch_size, world_size, drop_last)
    rest = num % (batch_size * world_size)
    if not drop_last and 0 < rest < world_size and (batch_size == 1 or num < world_size):
        with pytest.raises(DataError, match="same number of steps"):
            split.check()
        return
    split.check()
    places = Counter(
        place
        for step in range(split.num_steps)
        for rank in range(world_size)
        for place in range(*split.rank_bounds(step, rank))
    )
    sizes = [stop - start for step in range(split.num_steps) for rank in range(world_size)
             for start, stop in [split.rank_bounds(step, rank)]]  # fmt: skip

    assert places == Counter(range(num - split.num_dropped))
    assert all(1 <= size <= batch_size for size in sizes)


@given(st.integers(1, 200), st.integers(2, 7), st.integers(1, 5), st.integers(0, 60))
def test_what_is_left_after_a_step_is_split_as_it_would_have_been(num, size, ranks, step):
    whole = RankSplit(num, size, ranks)
    if num < ranks or step >= whole.num_steps:
        return
    behind = whole.step_bounds(step)[1]
    left = RankSplit(num - behind, size, ranks)

    after = [whole.step_bounds(one) for one in range(step + 1, whole.num_steps)]
    shifted = [left.step_bounds(one) for one in range(left.num_steps)]
    assert after == [(start + behind, stop + behind) for start, stop in shifted]


@pytest.mark.parametrize(
    ("num", "drop_last", "said"),
    [
        (12, False, "same size"),
        (13, True, "last 1 samples"),
        (15, False, "1 or 2 of 3"),
        (13, False, "1 of 3 samples; the one before has 1 fewer"),
    ],
)
def test_how_the_end_is_treated_is_said(num, drop_last, said):
    assert said in RankSplit(num, 3, 2, drop_last).say_end()
