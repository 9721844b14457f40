"""What paired log ratios say: intervals, the noise floor, what a lever is worth."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptime.core.interval import Interval
from steptime.tune.search.proof.pairs import (
    MIN_FLOOR,
    Worth,
    chain,
    floor_of,
    half_width,
    interval,
    middle,
    pairs_for,
    to_speedup,
    worth,
)


def found(low: float, high: float, *, n: int = 20) -> Interval:
    return Interval(estimate=(low + high) / 2, low=low, high=high, n=n)


def test_an_interval_leaves_out_what_is_not_a_number():
    assert interval([0.1, math.nan, *[0.1] * 5, math.inf]).n == 6


@pytest.mark.parametrize("n", range(6))
def test_fewer_than_six_pairs_are_no_interval(n):
    assert interval([0.1] * n) is None
    assert middle([0.1] * n) == (0.1 if n else None)


@pytest.mark.parametrize(("error", "least"), [(0.05, 6), (0.04, 6), (0.005, 9), (0.0025, 10)])
def test_an_interval_that_errs_less_often_takes_more_pairs(error, least):
    assert interval([0.1] * (least - 1), error=error) is None
    assert interval([0.1] * least, error=error).n == least


def test_an_interval_that_errs_less_often_is_wider():
    values = [(i * 17 % 40) / 40 for i in range(40)]

    assert interval(values, error=0.005).low < interval(values).low


@given(st.lists(st.floats(-1, 1), min_size=6, max_size=40))
def test_swapping_the_two_sides_turns_the_interval_around(values):
    forth, back = interval(values), interval([-value for value in values])

    assert forth.estimate == pytest.approx(-back.estimate)
    assert (forth.low, forth.high) == pytest.approx((-back.high, -back.low))


def test_a_speedup_is_a_ratio_of_times():
    speedup = to_speedup(found(math.log(1.9), math.log(2.1)))

    assert (speedup.low, speedup.high, speedup.n) == (pytest.approx(1.9), pytest.approx(2.1), 20)


def test_the_noise_floor_is_how_far_the_same_reaches_from_no_change():
    assert floor_of(found(-0.03, 0.02)) == pytest.approx(math.expm1(0.03))


def test_where_the_middle_is_off_the_noise_floor_is_larger_than_the_half_width():
    same = found(0.01, 0.05)

    assert floor_of(same) > half_width(same)


def test_a_quiet_machine_has_a_noise_floor_too():
    assert floor_of(found(-0.001, 0.001)) == MIN_FLOOR


@pytest.mark.parametrize(
    ("low", "high", "is_worth"),
    [
        (0.06, 0.10, Worth.GAIN),
        (0.04, 0.10, Worth.UNCLEAR),
        (-0.02, 0.06, Worth.UNCLEAR),
        (-0.04, 0.04, Worth.NOTHING),
        (-0.04, -0.01, Worth.SLOWER),
    ],
)
def test_a_lever_is_worth_what_its_whole_interval_says(low, high, is_worth):
    assert worth(found(low, high), 0.05, bias=0.05) is is_worth


def test_half_the_width_takes_four_times_the_pairs():
    assert pairs_for(found(-0.04, 0.04, n=20), 0.02) == 80


def test_two_gains_on_top_of_each_other_add_up_with_their_uncertainty():
    both = chain(found(0.07, 0.13, n=9), found(0.16, 0.24, n=20))

    assert both.estimate == pytest.approx(0.3)
    assert half_width(both) == pytest.approx(0.05)
    assert both.n == 9


def test_a_gain_on_top_of_nothing_is_itself():
    assert chain(None, found(0.1, 0.2)) == found(0.1, 0.2)
