import math
from dataclasses import replace

import pytest

from page_cases import START, make_devices, make_host, make_steps
from report_cases import healthy
from steptime.measure.values.over_time import Event, StepPoint
from steptime.report.blocks.run.course_points import (
    grouped,
    longest_events,
    mean_of,
    own_time_s,
    phase_bins,
    rate_of,
    throttled_periods,
    usual_top,
)


def make_step(index: int = 0, **wall_s: float) -> StepPoint:
    return StepPoint(
        rank=0,
        index=index,
        end_unix_s=START + index + 1,
        step_time_s=sum(wall_s.values()),
        wall_s=wall_s,
    )


def test_groups_are_even_and_hold_every_point_once() -> None:
    groups = grouped(range(1003), 10)
    assert len(groups) == 10
    assert [x for group in groups for x in group] == list(range(1003))
    assert {len(group) for group in groups} == {100, 101}


def test_few_points_are_groups_of_one_and_none_are_none() -> None:
    assert [list(g) for g in grouped([7, 8], 10)] == [[7], [8]]
    assert grouped([], 10) == []


def test_the_mean_leaves_out_what_was_not_observed_or_is_no_number() -> None:
    assert mean_of([1.0, None, math.nan, 3.0], lambda v: v) == 2.0
    assert mean_of([None], lambda v: v) is None


def test_a_rate_is_what_was_counted_over_the_time_it_was_counted_in() -> None:
    points = make_host(num=4)
    rate = rate_of(points, lambda p: p.loopback_bytes)
    assert rate == 4 * 1024 * 1024
    assert rate_of(points, lambda p: None) is None


def test_phases_are_means_of_usual_steps() -> None:
    steps = [make_step(i, forward=0.1, backward=0.2 + 0.1 * (i % 2)) for i in range(8)]
    (only,) = phase_bins(steps, 1)
    assert dict(only.wall_s) == pytest.approx({"forward": 0.1, "backward": 0.25})
    assert only.first == 0
    assert only.start_unix_s == pytest.approx(START + 1 - 0.3)


def test_steps_that_a_stall_made_longer_have_no_bin() -> None:
    steps = [make_step(i, forward=0.01) for i in range(4)]
    steps[2] = replace(make_step(2, other=25.0), is_disturbed=True)
    assert [b.first for b in phase_bins(steps)] == [0, 1, 3]
    assert [b.first for b in phase_bins(steps[2:3])] == [2]


def test_a_run_of_any_length_has_a_bounded_number_of_bins() -> None:
    assert len(phase_bins(make_steps(healthy(), num=5000))) <= 120
    assert phase_bins([]) == []


def test_the_axis_ends_above_the_largest_where_it_is_near_the_others() -> None:
    assert usual_top([1.0, 1.1, 1.2]) == pytest.approx(1.32)


def test_one_long_step_does_not_press_the_others_flat() -> None:
    top = usual_top([0.01] * 500 + [60.0])
    assert top is not None
    assert top < 0.05


def test_a_step_time_that_doubled_stays_on_the_axis() -> None:
    top = usual_top([0.1] * 300 + [0.2] * 200)
    assert top is not None
    assert top > 0.2


def test_what_does_not_count_is_shown_as_far_as_it_is_near_what_does() -> None:
    assert usual_top([0.1] * 50, [0.1] * 50 + [0.2]) == pytest.approx(0.22)
    assert usual_top([0.1] * 50, [25.0] * 3) == pytest.approx(0.33)


def test_nothing_and_no_numbers_have_no_axis() -> None:
    assert usual_top([]) is None
    assert usual_top([math.nan, math.inf, 0.0]) is None


def test_a_ranks_own_time_is_all_but_the_exchange() -> None:
    assert own_time_s(make_step(forward=0.3, communication=0.1)) == pytest.approx(0.3)


def test_of_too_many_events_the_longest_stay_in_order() -> None:
    events = [
        Event(what="gc", rank=0, t_unix_s=float(i), seconds=s) for i, s in enumerate((3, 1, 2))
    ]
    assert [e.seconds for e in longest_events(events, 2)] == [3, 2]


def test_a_device_that_is_held_down_is_so_from_look_to_look() -> None:
    periods = throttled_periods(make_devices(num=64, num_devices=2))
    assert periods == [
        ("GPU-3f2a4c00", ("thermal",), START + 42, START + 64),
        ("GPU-3f2a4c01", ("thermal",), START + 42, START + 64),
    ]


def test_a_device_that_runs_free_has_no_such_period() -> None:
    assert throttled_periods(make_devices(num=10)) == []
