"""Median and interval, dependence, warmup, period."""

from __future__ import annotations

import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptime.core import stats
from steptime.core.stats import (
    effective_size,
    find_period,
    lag1_autocorrelation,
    median,
    median_interval,
    thin,
    trend,
    warmup_length,
    weighted_median,
    winsorize,
)

values = st.lists(st.floats(0, 1e6), min_size=1, max_size=60)


def dependent(n: int, r: float, *, seed: int = 0) -> list[float]:
    """A process of first order with lag-1 autocorrelation `r`, mean 10, standard deviation 1."""
    rng, state, found = random.Random(seed), 0.0, []
    for _ in range(n):
        state = r * state + math.sqrt(1 - r * r) * rng.gauss(0, 1)
        found.append(10 + state)
    return found


# -- median


@given(values)
def test_the_median_is_the_one_of_the_standard_library(sample: list[float]) -> None:
    assert median(sample) == statistics.median(sample)


@given(values)
def test_equal_weights_give_the_plain_median(sample: list[float]) -> None:
    assert weighted_median(sample, [3.0] * len(sample)) == statistics.median(sample)


@given(st.lists(st.tuples(st.floats(0, 9), st.integers(1, 5)), min_size=1, max_size=20))
def test_a_weight_is_a_value_repeated(pairs: list[tuple[float, int]]) -> None:
    repeated = [value for value, count in pairs for _ in range(count)]

    found = weighted_median([value for value, _ in pairs], [float(count) for _, count in pairs])

    assert found == statistics.median(repeated)


def test_no_values_have_no_median() -> None:
    with pytest.raises(ValueError, match="must not be empty"):
        median([])
    with pytest.raises(ValueError, match="must not be empty"):
        weighted_median([], [])


# -- interval


@given(values)
def test_the_interval_holds_the_median_and_lies_within_the_values(sample: list[float]) -> None:
    found = median_interval(sample)

    assert min(sample) <= found.low <= found.estimate <= found.high <= max(sample)
    assert found.n == len(sample)


@pytest.mark.parametrize("n", [1, 5, 6, 8, 9, 20, 100, 333])
def test_ranks_are_those_of_the_binomial_distribution(n: int) -> None:
    def below(rank: int) -> float:
        return sum(math.comb(n, k) for k in range(rank)) / 2**n

    rank = stats._low_rank(n)

    assert below(rank) <= 0.025 < below(rank + 1)


def test_exact_and_normal_ranks_meet() -> None:
    exact, normal = stats._low_rank(1000), stats._low_rank(1001)

    assert 0 <= normal - exact <= 1


def test_few_values_give_their_range() -> None:
    found = median_interval([3.0, 1.0, 2.0])

    assert (found.low, found.estimate, found.high) == (1.0, 2.0, 3.0)


def test_the_interval_covers_the_median_of_independent_values() -> None:
    rng = random.Random(1)
    samples = ([rng.expovariate(1) for _ in range(40)] for _ in range(400))

    covered = [(q := median_interval(s)).low <= math.log(2) <= q.high for s in samples]

    assert sum(covered) >= 0.94 * 400


def test_the_interval_covers_the_median_of_dependent_values() -> None:
    samples = (dependent(200, 0.7, seed=seed) for seed in range(300))

    covered = [(q := median_interval(s)).low <= 10 <= q.high for s in samples]

    assert sum(covered) >= 0.94 * 300


# -- dependence


def test_effective_size_follows_the_formula() -> None:
    sample = dependent(4000, 0.6)

    assert effective_size(sample) == pytest.approx(4000 * 0.4 / 1.6, rel=0.15)


def test_values_that_alternate_count_in_full() -> None:
    assert effective_size([1.0, 2.0] * 50) == 100


def test_outliers_do_not_hide_dependence() -> None:
    sample = dependent(400, 0.8)
    spiked = [1000.0 if i % 40 == 0 else value for i, value in enumerate(sample)]

    assert lag1_autocorrelation(spiked) < 0.2
    assert effective_size(spiked) < 100


def test_a_trend_leaves_at_least_one_value() -> None:
    assert effective_size([float(i) for i in range(1000)]) == pytest.approx(
        1000 * 0.05 / 1.95, abs=1
    )
    assert effective_size([1.0]) == 1


def test_what_does_not_vary_is_not_correlated() -> None:
    assert lag1_autocorrelation([2.0] * 10) == 0.0
    assert lag1_autocorrelation([]) == 0.0


def test_winsorizing_pulls_in_one_value_in_twenty_at_each_end() -> None:
    assert winsorize([float(i) for i in range(20)]) == [1.0, *map(float, range(1, 19)), 18.0]


def test_two_values_stay_as_they_are() -> None:
    assert winsorize([1.0, 9.0]) == [1.0, 9.0]


# -- warmup


def test_slow_first_steps_are_cut_off() -> None:
    assert warmup_length([30.0] * 8 + dependent(100, 0.0)) == 10


def test_equal_steps_have_no_warmup() -> None:
    assert warmup_length([0.1] * 200) == 0


def test_a_late_outlier_cuts_nothing_before_it() -> None:
    assert warmup_length([1.0] * 40 + [1000.0] + [1.0] * 59) == 0


def test_a_change_in_the_second_half_is_no_warmup() -> None:
    assert warmup_length([10.0] * 70 + [1.0] * 30) == 0


def test_a_change_in_the_first_half_is_cut_off() -> None:
    assert warmup_length([10.0] * 30 + [1.0] * 70) == 30


@pytest.mark.parametrize("power", [0.8, 1.0, 2.0])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_trend_is_no_warmup(power: float, sign: float) -> None:
    noise = dependent(400, 0.0)
    grows = [10.0 + sign * 5.0 * (n / 400) ** power + 0.1 * noise[n] for n in range(400)]

    assert warmup_length(grows) == 0
    assert warmup_length([30.0] * 8 + grows) <= 10


@given(values)
def test_warmup_is_whole_batches_of_the_first_half(sample: list[float]) -> None:
    found = warmup_length(sample)

    assert found % stats.BATCH == 0
    assert 2 * found <= len(sample)


@pytest.mark.parametrize("n", [0, 1, 9, 19])
def test_fewer_than_twenty_steps_have_no_warmup_that_can_be_told(n: int) -> None:
    assert warmup_length([9.0, *[1.0] * (n - 1)] if n else []) == 0


# -- period


def test_steps_that_are_all_alike_have_period_one() -> None:
    assert find_period("aaaaaaaa") == 1


def test_the_smallest_period_is_found() -> None:
    assert find_period("ddddg" * 4) == 5
    assert find_period("abab") == 2


def test_nothing_repeats_in_less_than_two_full_periods() -> None:
    assert find_period("ddddgdddd") is None
    assert find_period("ab") is None
    assert find_period("a") is None
    assert find_period("") is None


def test_one_step_in_ten_may_differ() -> None:
    assert find_period("ab" * 50 + "c" + "ab" * 10) == 2


def test_a_period_above_sixty_four_is_not_looked_for() -> None:
    kinds = "".join(chr(ord("A") + i) for i in range(65)) * 3

    assert find_period(kinds) is None
    assert find_period(kinds, max_period=65) == 65


@given(st.lists(st.integers(0, 3), min_size=1, max_size=8), st.integers(2, 5))
def test_a_repeated_pattern_has_a_period_of_at_most_its_length(
    kinds: list[int], times: int
) -> None:
    found = find_period(kinds * times)

    assert found is not None
    assert found <= len(kinds)


# -- trend

slopes = st.integers(-1000, 1000)


@given(slope=slopes, n=st.integers(8, 40), start=slopes)
def test_a_line_has_its_slope_exactly(slope: int, n: int, start: int) -> None:
    found = trend([(float(x), float(start + slope * x)) for x in range(n)])

    assert found is not None
    assert (found.low, found.estimate, found.high, found.n) == (slope, slope, slope, n)


@given(st.lists(st.floats(0, 1e3), min_size=8, max_size=40, unique=True), st.integers(0, 10**12))
def test_a_constant_has_no_slope(xs: list[float], value: int) -> None:
    found = trend([(x, float(value)) for x in sorted(xs)])

    assert found is not None
    assert found.low <= 0 <= found.high
    assert found.estimate == 0


@given(slope=slopes, where=st.sets(st.integers(0, 29), max_size=8), size=st.floats(-1e9, 1e9))
def test_outliers_do_not_move_a_slope(slope: int, where: set[int], size: float) -> None:
    line = [(float(x), float(slope * x)) for x in range(30)]

    found = trend([(x, size) if x in where else (x, y) for x, y in line])

    assert found is not None
    assert found.low <= found.estimate == slope <= found.high


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(-99, 99)), min_size=8, max_size=50))
def test_the_interval_of_a_slope_holds_it(points: list[tuple[int, int]]) -> None:
    found = trend([(float(x), float(y)) for x, y in sorted(points)])

    assert found is None or found.low <= found.estimate <= found.high


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(-99, 99)), min_size=8, max_size=30))
def test_a_slope_turns_with_its_values(points: list[tuple[int, int]]) -> None:
    up = trend([(float(x), float(y)) for x, y in sorted(points)])
    down = trend([(float(x), -float(y)) for x, y in sorted(points)])

    assert (up is None) == (down is None)
    if up is not None and down is not None:
        assert down.estimate == pytest.approx(-up.estimate)


@pytest.mark.parametrize("points", [[(float(x), 1.0) for x in range(7)], [(3.0, 1.0)] * 20, []])
def test_few_points_or_a_single_x_have_no_slope(points: list[tuple[float, float]]) -> None:
    assert trend(points) is None


def test_of_many_points_as_many_are_taken_evenly() -> None:
    found = trend([(float(x), 3.0 * x) for x in range(10_000)])

    assert found is not None
    assert (found.estimate, found.n) == (3.0, 200)


@given(st.integers(0, 300), st.integers(2, 20))
def test_thinning_keeps_the_ends_and_the_order(n: int, size: int) -> None:
    found = list(thin(range(n), size))

    assert len(found) == min(n, size)
    assert found == sorted(set(found))
    assert found[:1] == list(range(n))[:1]
    assert found[-1:] == list(range(n))[-1:]


@pytest.mark.parametrize(("n", "r"), [(40, 0.0), (100, 0.5), (100, 0.8)])
def test_the_interval_of_a_slope_covers_it_for_dependent_values(n: int, r: float) -> None:
    samples = (dependent(n, r, seed=seed) for seed in range(100))
    trends = [trend([(float(x), y) for x, y in enumerate(sample)]) for sample in samples]

    assert sum(q is not None and q.low <= 0 <= q.high for q in trends) >= 88
