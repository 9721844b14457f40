"""Lasting changes of a series: found where they are, and not where there are none."""

from __future__ import annotations

import math
import random

import pytest

from steptime.core.interval import Interval
from steptime.diagnose.shifts.change_points import (
    CRITICAL,
    MAX_VALUES,
    ChangePoint,
    find_change,
    find_changes,
    independent_fraction,
    largest_difference,
    rank_values,
)


def make_noise(n: int, *, spread: float = 0.05, seed: int = 1, r: float = 0.0) -> list[float]:
    """Step times about 0.1 s; each depends on the one before by `r`."""
    chance, last, found = random.Random(seed), 0.0, []
    for _ in range(n):
        last = r * last + math.sqrt(1 - r * r) * chance.gauss(0, spread)
        found.append(0.1 * math.exp(last))
    return found


def make_step(n: int, at: int, ratio: float, **noise: float) -> list[float]:
    values = make_noise(n, **noise)
    return [value * (ratio if i >= at else 1.0) for i, value in enumerate(values)]


@pytest.mark.parametrize(
    ("n", "at", "ratio"), [(100, 50, 2.0), (100, 20, 1.5), (4000, 1200, 1.3), (1000, 600, 0.5)]
)
def test_a_lasting_change_is_found_where_it_is(n: int, at: int, ratio: float) -> None:
    (change,) = find_changes(make_step(n, at, ratio))

    assert abs(change.index - at) <= 2
    assert change.ratio.low <= ratio <= change.ratio.high
    assert change.after / change.before == pytest.approx(ratio, rel=0.03)


def test_it_is_found_among_outliers_too() -> None:
    values = make_step(200, 100, 1.5)
    for i in range(0, 200, 17):
        values[i] *= 30

    (change,) = find_changes(values)

    assert change.index == pytest.approx(100, abs=2)


@pytest.mark.parametrize("r", [0.0, 0.5, 0.9])
def test_noise_has_no_change(r: float) -> None:
    assert all(find_changes(make_noise(150, seed=seed, spread=0.2, r=r)) == () for seed in range(5))


def test_a_change_that_is_too_small_to_matter_is_none() -> None:
    assert find_changes(make_step(400, 200, 1.05, spread=0.01)) == ()


def test_a_slope_a_spell_and_a_period_are_no_lasting_change() -> None:
    noise = make_noise(300, spread=0.02)
    slope = [value * (1 + i / 300) for i, value in enumerate(noise)]
    spell = [value * (3.0 if 100 <= i < 120 else 1.0) for i, value in enumerate(noise)]
    period = [value * (3.0 if i % 4 == 0 else 1.0) for i, value in enumerate(noise)]

    assert [find_changes(values) for values in (slope, spell, period)] == [(), (), ()]


def test_two_changes_are_two() -> None:
    noise = make_noise(300, spread=0.02)
    values = [
        value * (1.0 if i < 100 else 2.0 if i < 200 else 4.0) for i, value in enumerate(noise)
    ]

    first, second = find_changes(values)

    assert (first.index, second.index) == (pytest.approx(100, abs=2), pytest.approx(200, abs=2))


@pytest.mark.parametrize("values", [[], [0.1], [0.1] * 23, [0.1] * 300, [0.1] * 10 + [0.2] * 10])
def test_too_few_or_equal_values_have_no_change(values: list[float]) -> None:
    assert find_changes(values) == ()


def test_a_change_without_any_noise_is_found_too() -> None:
    assert find_changes([0.1] * 40 + [0.2] * 40) == (
        ChangePoint(
            index=40,
            before=pytest.approx(0.1),
            after=pytest.approx(0.2),
            ratio=Interval(
                estimate=pytest.approx(2.0),
                low=pytest.approx(2.0),
                high=pytest.approx(2.0),
                n=80,
            ),
        ),
    )


def test_a_change_needs_room_on_either_side() -> None:
    assert find_change([0.1] * 5 + [0.2] * 95) is None


def test_many_values_are_found_at_their_own_place() -> None:
    at = 5 * MAX_VALUES + 3

    (change,) = find_changes(make_step(10 * MAX_VALUES, at, 1.4, spread=0.01))

    assert change.index == at


def test_ranks_of_equal_values_share_their_mean() -> None:
    assert rank_values([3.0, 1.0, 3.0, 2.0]) == [3.5, 1.0, 3.5, 2.0]


def test_the_difference_of_a_step_is_large_and_that_of_a_wave_small() -> None:
    step = [1.0, 2.0, 1.0, 2.0, 1.0] * 4 + [9.0, 8.0, 9.0, 8.0, 9.0] * 4
    wave = [math.sin(i) for i in range(40)]

    place, difference = largest_difference(step, 10)
    assert (place, difference > CRITICAL) == (20, True)
    assert largest_difference(wave, 10)[1] < CRITICAL
    assert largest_difference([1.0] * 20, 10)[1] == 0


def test_dependent_values_say_less() -> None:
    alone, after_each_other = make_noise(400), make_noise(400, r=0.9)

    assert independent_fraction([math.log(v) for v in alone]) > 0.8
    assert independent_fraction([math.log(v) for v in after_each_other]) < 0.15
