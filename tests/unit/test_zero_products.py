"""An input that is mostly zeros: how it is looked at, and what is said of it."""

from __future__ import annotations

from array import array
from ctypes import addressof, c_char
from dataclasses import replace
from typing import Any

import pytest

from steptime.core.codec import from_json, to_json
from steptime.diagnose.ailments.compute.zero_products import find_zero_input
from steptime.diagnose.values.finding import Severity
from steptime.guest.count.operators.zero_inputs import count_zeros
from steptime.measure.values.measurement import Measurement
from steptime.measure.values.model.operator_time import TimedOperator
from steptime.measure.values.model.work import ClassCount, Count
from steptime.measure.values.observations import Operators, ZeroInput
from steptime.report.words.run.run_words import describe_finding
from unit.builders import make_measurement

BAG = ZeroInput(
    rows=2708,
    columns=1433,
    zero_fraction=0.98,
    product_s=0.3,
    module="GCN.conv1.lin",
    module_kind="Linear",
)


def share_of_zeros(values: array[Any]) -> float:
    view = (c_char * (len(values) * values.itemsize)).from_buffer(values)
    return count_zeros(addressof(view), len(values), values.itemsize)


@pytest.mark.parametrize("code", ["f", "d"])
@pytest.mark.parametrize("num", [100, 70_000])
def test_zeros_of_either_sign_are_counted_at_some_places(code: str, num: int) -> None:
    assert share_of_zeros(array(code, [0.0, -0.0] * (num // 2))) == 1.0
    assert share_of_zeros(array(code, [1e-30] * num)) == 0.0
    tenth = array(code, [float(i % 10 == 3) for i in range(num)])
    assert share_of_zeros(tenth) == pytest.approx(0.9, abs=0.01)


def timed(zero_input: ZeroInput, **fields: Any) -> Measurement:
    """A step of a second, of which forward and backward have 0.9 s."""
    rows = (TimedOperator(name="aten.mm", kind="matmul", module="", module_kind="", time_s=0.9),)
    classes = (ClassCount(name="matmul", time_s=0.9),)
    values: dict[str, Any] = {"forward": 1, "backward": 2, "recomputed": 0, "macs": 1}
    values |= {"by_dtype": {"fp32": 3}, "classes": classes, "operators": rows, "clock": "wall"}
    seen = Operators(num=9, large_s=0.9, zero_input=zero_input)
    return make_measurement(compute_s=1.0, count=Count(**values), operators=seen, **fields)


def test_the_bound_is_what_the_zeros_took() -> None:
    found = find_zero_input(timed(BAG))

    assert found is not None
    assert found.severity is Severity.WARNING
    assert found.headroom_speedup == pytest.approx(1 / (1 - 0.98 * 0.3))
    text = describe_finding(found, 1.0)
    assert "98.0 % of the input of GCN.conv1.lin (Linear), a matrix of 2,708 x 1,433, are" in text
    assert "matmul with it takes 30.0 % of a step" in text
    assert "at most 1.42x faster" in text
    assert "dropout" not in text


def test_a_dropout_of_the_same_input_is_told_beside() -> None:
    found = find_zero_input(timed(replace(BAG, other_s=0.5)))

    assert found is not None
    assert "take 50.0 % more" in describe_finding(found, 1.0)
    assert found.headroom_speedup == pytest.approx(1 / (1 - 0.98 * 0.8))


def test_a_small_product_is_not_worth_a_word() -> None:
    assert find_zero_input(timed(replace(BAG, product_s=0.08))) is None
    assert find_zero_input(make_measurement()) is None


def test_what_was_seen_survives_the_way_through_json() -> None:
    seen = Operators(num=3, zero_input=BAG)
    assert from_json(Operators, to_json(seen)) == seen
