"""Operators of microseconds: the times that are told add up to no more than their phases."""

from __future__ import annotations

import math

import pytest

from steptime.core.interval import Interval
from steptime.measure.values.measurement import Phase, SteadyWindow
from steptime.measure.values.model.operator_time import TimedModule, TimedOperator
from steptime.measure.values.model.work import ClassCount, Count, GroupCount
from steptime.measure.work.operator_share import within_phases

STEADY = SteadyWindow(
    first_step=1,
    num_steps=9,
    num_warmup_steps=1,
    rule="",
    mean_s=200e-6,
    step_time_s=Interval(estimate=200e-6, low=190e-6, high=210e-6, n=9),
)
PHASES = (
    Phase(name="forward", median_s=50e-6, cpu_median_s=50e-6, fraction=0.25),
    Phase(name="backward", median_s=90e-6, cpu_median_s=90e-6, fraction=0.45),
    Phase(name="optimizer", median_s=60e-6, cpu_median_s=60e-6, fraction=0.3),
)


def make_count(scale: float = 1.0, *, device_s: float | None = None) -> Count:
    """Two products of 60 µs and ten small operators of 16 µs, times `scale`: 280 µs."""
    small, large = 160e-6 * scale, 120e-6 * scale
    return Count(
        forward=1,
        backward=1,
        recomputed=0,
        macs=1,
        by_dtype={},
        clock="cpu",
        classes=(
            ClassCount(name="elementwise", num=10, time_s=small, device_time_s=device_s),
            ClassCount(name="matmul", num=2, time_s=large, device_time_s=device_s),
        ),
        groups=(
            GroupCount(name="elementwise", num=10, time_s=small),
            GroupCount(name="matmul", num=2, time_s=large),
        ),
        operators=(
            TimedOperator(name="aten.t", kind="elementwise", num=10, time_s=small),
            TimedOperator(name="aten.mm", kind="matmul", num=2, time_s=large),
        ),
        module_times=(TimedModule(name="0", kind="Linear", num=12, time_s=small + large),),
    )


def total(rows: tuple[ClassCount, ...] | tuple[TimedOperator, ...] | tuple[TimedModule, ...]):
    return math.fsum(row.time_s or 0.0 for row in rows)


def test_times_beyond_the_phases_lose_the_same_for_each_operator() -> None:
    found = within_phases(make_count(), PHASES, STEADY)

    assert found is not None
    times = {one.name: one.time_s for one in found.classes}
    cost = (280e-6 - 140e-6) / 12
    assert times["elementwise"] == pytest.approx(160e-6 - 10 * cost)
    assert times["matmul"] == pytest.approx(120e-6 - 2 * cost)
    assert total(found.classes) == pytest.approx(140e-6)
    assert total(found.operators) == pytest.approx(140e-6)
    assert total(found.module_times) == pytest.approx(140e-6)
    assert found.operators[0].name == "aten.mm"  # the longest first


def test_operators_that_cost_more_than_they_took_are_left_with_nothing() -> None:
    phases = (Phase(name="forward", median_s=60e-6, cpu_median_s=60e-6, fraction=0.3),)
    found = within_phases(make_count(), phases, STEADY)

    assert found is not None
    times = {one.name: one.time_s for one in found.classes}
    assert times == pytest.approx({"elementwise": 0.0, "matmul": 60e-6}, abs=1e-9)


@pytest.mark.parametrize(
    "count", [make_count(0.4), make_count(device_s=1e-4), None], ids=["fits", "device", "none"]
)
def test_other_times_stay_as_they_are(count: Count | None) -> None:
    assert within_phases(count, PHASES, STEADY) is count
