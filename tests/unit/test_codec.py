"""Values to JSON and back."""

from __future__ import annotations

import json
import types
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steptime.core.codec import check_schema, from_json, to_json
from steptime.core.interval import Interval
from steptime.core.note import Note
from steptime.core.process_end import RunState
from steptime.diagnose.values.finding import Diagnosis
from steptime.errors import DamagedRunError
from steptime.levers.base import Facts
from steptime.measure.values.measurement import Measurement, Overhead, Span
from steptime.tune.search.bench import ComparisonResult, LiveRequest, ProcessRequest
from steptime.tune.values.study_values import Applied, Study
from unit.builders import make_measurement

OVERHEAD = {"cpu_s_per_step": 0.001, "fraction": 0.01}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    is_done: bool
    counts: Mapping[str, int]
    marks: tuple[float, ...] = ()


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """Every value that a field with this annotation may have."""
    if get_origin(hint) in (Union, types.UnionType):
        return st.one_of([values_of(part) for part in get_args(hint)])
    if get_origin(hint) is tuple:
        return st.lists(values_of(get_args(hint)[0]), max_size=2).map(tuple)
    if get_origin(hint) is not None:
        return st.dictionaries(st.text(max_size=3), values_of(get_args(hint)[1]), max_size=2)
    if is_dataclass(hint):
        hints = get_type_hints(hint)
        return st.builds(
            hint, **{field.name: values_of(hints[field.name]) for field in fields(hint)}
        )
    if isinstance(hint, type) and issubclass(hint, Enum):
        return st.sampled_from(hint)
    plain = {
        type(None): st.none(),
        str: st.text(max_size=5),
        int: st.integers(-5, 5),
        float: st.floats(allow_nan=False, allow_infinity=False),
        bool: st.booleans(),
    }
    return plain[hint]


STUDIED = [Study, Facts, LiveRequest, ComparisonResult, ProcessRequest]


@pytest.mark.parametrize("cls", [Measurement, Diagnosis, Tally, *STUDIED])
@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_every_value_survives_a_round_trip_through_json(cls: type, data: st.DataObject) -> None:
    value = data.draw(values_of(cls))
    if hasattr(value, "schema"):
        value = replace(value, schema=1)

    assert from_json(cls, json.loads(json.dumps(to_json(value), allow_nan=False))) == value


@given(data=st.recursive(st.none() | st.booleans() | st.floats() | st.text(), lambda inner: (
    st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(
        ["is_done", "counts", "marks", "name", "total_s"]), inner, max_size=4)
)))  # fmt: skip
def test_foreign_data_gives_a_value_or_our_own_error(data: object) -> None:
    for cls in (Tally, Span):
        try:
            value: object = from_json(cls, data)
        except DamagedRunError:
            continue
        assert isinstance(value, cls)


def test_keys_that_are_not_known_are_ignored() -> None:
    assert from_json(Overhead, {**OVERHEAD, "of_the_future": 1}) == Overhead(**OVERHEAD)


def test_a_missing_key_is_named() -> None:
    with pytest.raises(DamagedRunError, match=r"`Overhead\.fraction` is missing"):
        from_json(Overhead, {"cpu_s_per_step": 0.001})


def test_a_missing_key_with_a_default_takes_it() -> None:
    assert from_json(Note, {"code": "torn_lines"}) == Note(code="torn_lines", facts=None)


def test_the_place_of_a_wrong_value_is_named_through_all_levels() -> None:
    data = to_json(make_measurement())
    data["ranks"][0]["phases"][2]["median_s"] = "quick"

    with pytest.raises(DamagedRunError, match=r"`m\.json\.ranks\[0\]\.phases\[2\]\.median_s` must"):
        from_json(Measurement, data, where="m.json")


@pytest.mark.parametrize(
    ("key", "wrong", "expected"),
    [
        ("num_steps", 1.5, "int"),
        ("num_steps", True, "int"),
        ("run_id", 7, "str"),
        ("started_unix_s", "noon", "finite number"),
        ("started_unix_s", True, "finite number"),
        ("started_unix_s", float("nan"), "finite number"),
        ("started_unix_s", None, "finite number"),
        ("command", "python train.py", "array"),
        ("end", [], "object"),
        ("end", {"state": "asleep"}, "one of running, finished"),
        ("notes", [{"code": "a", "facts": 3}], "object"),
        ("run_id", ["x" * 100], r"\.\.\."),
    ],
)
def test_a_value_of_another_type_is_refused(key: str, wrong: object, expected: str) -> None:
    with pytest.raises(DamagedRunError, match=expected):
        from_json(Measurement, {**to_json(make_measurement()), key: wrong})


def test_a_whole_number_may_stand_for_a_fractional_one() -> None:
    read = from_json(Overhead, {"cpu_s_per_step": 1, "fraction": None})

    assert type(read.cpu_s_per_step) is float


def test_data_that_is_no_object_is_refused() -> None:
    with pytest.raises(DamagedRunError, match="must be an object, got 3"):
        from_json(Overhead, 3)


def test_an_enumeration_is_written_as_its_word() -> None:
    data = to_json(make_measurement())

    assert data["end"]["state"] == "finished"
    assert from_json(Measurement, data).end.state is RunState.FINISHED


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_finite_is_null_where_it_may_be(value: float) -> None:
    assert to_json(Overhead(cpu_s_per_step=0.0, fraction=value))["fraction"] is None


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_finite_is_an_error_where_null_may_not_be(value: float) -> None:
    with pytest.raises(ValueError, match=r"`Interval\.low` must be finite"):
        to_json(Interval(estimate=1.0, low=value, high=1.0, n=3))
    with pytest.raises(ValueError, match=r"`Tally\.marks\[1\]` must be finite"):
        to_json(Tally(is_done=True, counts={}, marks=(1.0, value)))


def test_a_newer_schema_is_refused_with_what_to_do() -> None:
    with pytest.raises(DamagedRunError, match="schema 2 is newer than this Steptime") as caught:
        from_json(Measurement, {"schema": 2}, where="measurement.json")

    assert "upgrade" in (caught.value.hint or "")


@pytest.mark.parametrize("schema", [None, 0, True, "1", 1.0])
def test_another_schema_is_foreign(schema: object) -> None:
    with pytest.raises(DamagedRunError, match="not written by Steptime"):
        check_schema({"schema": schema}, where="rank-0.jsonl")


def test_a_setting_keeps_its_type() -> None:
    settings = {"count": 1, "share": 1.0, "is_on": True, "dtype": "bf16"}

    read = from_json(Applied, json.loads(json.dumps(to_json(Applied(name="x", settings=settings)))))

    assert {name: type(value) for name, value in read.settings.items()} == {
        "count": int,
        "share": float,
        "is_on": bool,
        "dtype": str,
    }


def test_a_setting_of_another_type_is_damage() -> None:
    with pytest.raises(DamagedRunError, match="str or int or float or bool"):
        from_json(Applied, {"name": "x", "settings": {"count": [1]}})
