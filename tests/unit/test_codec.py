"""Values to JSON and back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import types
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steptime.core.codec import check_schema, decode, encode, from_json, render, to_json
from steptime.core.interval import Interval
from steptime.core.note import Note
from steptime.core.process_end import RunState
from steptime.core.ranges import range_of
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


WORDS = st.text(max_size=3).filter(lambda word: range_of(word) == range_of(""))
"""Keys of no quantity: hypothesis knows names such as `pid` from the source."""


def values_of(hint: Any, name: str = "") -> st.SearchStrategy[Any]:
    """Every value that a field with this annotation and name may have."""
    if get_origin(hint) in (Union, types.UnionType):
        return st.one_of([values_of(part, name) for part in get_args(hint)])
    if get_origin(hint) is tuple:
        return st.lists(values_of(get_args(hint)[0]), max_size=2).map(tuple)
    if get_origin(hint) is not None:
        return st.dictionaries(WORDS, values_of(get_args(hint)[1]), max_size=2)
    if is_dataclass(hint):
        hints = get_type_hints(hint)
        return st.builds(hint, **{f.name: values_of(hints[f.name], f.name) for f in fields(hint)})
    if isinstance(hint, type) and issubclass(hint, Enum):
        return st.sampled_from(hint)
    low, high = range_of(name)
    plain = {
        type(None): st.none(),
        str: st.text(max_size=5),
        int: st.integers(max(-5, int(low)), 5),
        float: st.floats(float(low), float(high)),
        bool: st.booleans(),
    }
    return plain[hint]


STUDIED = [Study, Facts, LiveRequest, ComparisonResult, ProcessRequest]


@pytest.mark.parametrize("cls", [Measurement, Diagnosis, Tally, *STUDIED])
@given(data=st.data())
@settings(max_examples=15)
def test_every_value_survives_a_round_trip_through_json(cls: type, data: st.DataObject) -> None:
    value = data.draw(values_of(cls))
    if hasattr(value, "schema"):
        value = replace(value, schema=1)

    assert decode(cls, encode(value)) == value
    assert from_json(cls, to_json(value)) == value


@given(data=st.recursive(st.none() | st.booleans() | st.floats() | st.text(), lambda inner: (
    st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(
        ["is_done", "counts", "marks", "name", "total_s"]), inner, max_size=4)
)))  # fmt: skip
def test_foreign_data_gives_a_value_or_our_own_error(data: object) -> None:
    for cls in (Tally, Span):
        try:
            value: object = from_json(cls, data)
        except DamagedRunError:
            with pytest.raises(DamagedRunError):
                decode(cls, json.dumps(data))
            continue
        assert isinstance(value, cls)
        assert decode(cls, json.dumps(data)) == value


@given(text=st.binary(max_size=20), num_kept=st.integers(0, 200))
def test_damaged_text_gives_our_own_error(text: bytes, num_kept: int) -> None:
    whole = encode(make_measurement()).encode()
    for damaged in (text, whole[: -1 - num_kept], whole[:1] + b"\xff" + whole[1:]):
        with pytest.raises(DamagedRunError):
            decode(Measurement, damaged)


@pytest.mark.parametrize(
    "text",
    [
        '{"is_done": true, "counts": ' + '{"a": ' * 100_000,
        '{"is_done": true, "counts": {}, "of_the_future": ' + "[" * 100_000 + "]" * 100_000 + "}",
        '{"is_done": true, "counts": {"a": 1' + "0" * 5_000 + "}}",
        '{"is_done": true, "counts": {}, "marks": [1' + "0" * 400 + "]}",
        '{"is_done": true, "counts": {}, "marks": [1e999]}',
        '{"is_done": true, "counts": {}, "marks": [NaN]}',
        '{"is_done": true, "counts": {1: 2}}',
    ],
)
def test_hostile_text_gives_our_own_error(text: str) -> None:
    with pytest.raises(DamagedRunError, match="Tally"):
        decode(Tally, text)
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return
    with pytest.raises(DamagedRunError, match="Tally"):
        from_json(Tally, data)


def test_a_number_that_is_not_finite_is_read_as_null_where_it_may_be() -> None:
    text = '{"cpu_s_per_step": 0.5, "fraction": NaN}'

    assert decode(Overhead, text) == Overhead(cpu_s_per_step=0.5, fraction=None)


def test_half_a_character_in_place_of_a_word_of_ours_is_our_own_error() -> None:
    text = encode(make_measurement()).replace('"finished"', '"\\ud800"')

    with pytest.raises(DamagedRunError, match="Measurement"):
        decode(Measurement, text)


def test_text_that_is_no_unicode_survives() -> None:
    note = Note(code="x", facts={"path": os.fsdecode(b"/data/\xff.pt")})

    assert encode(note).isascii()
    assert decode(Note, encode(note)) == note


def test_a_mapping_that_cannot_be_written_to_survives() -> None:
    tally = Tally(is_done=True, counts=types.MappingProxyType({"a": 1}))

    assert decode(Tally, encode(tally)) == tally


def test_a_document_is_written_whatever_is_in_it() -> None:
    text = render(Tally(is_done=True, counts={"é": 1}, marks=(1.0, float("nan"))))

    assert text.isascii()
    assert text.endswith("}\n")
    assert json.loads(text) == {"is_done": True, "counts": {"é": 1}, "marks": [1.0, None]}
    assert list(json.loads(text)) == ["counts", "is_done", "marks"]


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
        ("started_unix_s", "noon", "`float`"),
        ("started_unix_s", True, "`float`"),
        ("started_unix_s", float("nan"), "`float`"),
        ("started_unix_s", None, "`float`"),
        ("command", "python train.py", "array"),
        ("end", [], "object"),
        ("end", {"state": "asleep"}, r"`Measurement\.end\.state`: invalid enum value 'asleep'"),
        ("notes", [{"code": "a", "facts": 3}], "object"),
    ],
)
def test_a_value_of_another_type_is_refused(key: str, wrong: object, expected: str) -> None:
    with pytest.raises(DamagedRunError, match=expected):
        from_json(Measurement, {**to_json(make_measurement()), key: wrong})


def test_a_whole_number_may_stand_for_a_fractional_one() -> None:
    read = from_json(Overhead, {"cpu_s_per_step": 1, "fraction": None})

    assert type(read.cpu_s_per_step) is float


def test_data_that_is_no_object_is_refused() -> None:
    with pytest.raises(DamagedRunError, match="`Overhead` must be `object`, got 3"):
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
    with pytest.raises(ValueError, match=r"not finite: `Interval\.low`"):
        to_json(Interval(estimate=1.0, low=value, high=1.0, n=3))
    with pytest.raises(ValueError, match=r"not finite: `Tally\.marks\[1\]`"):
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
    with pytest.raises(
        DamagedRunError,
        match=r"`Applied\.settings\[\.\.\.\]` must be `bool \| int \| float \| str`",
    ):
        from_json(Applied, {"name": "x", "settings": {"count": [1]}})


def test_writing_needs_no_msgspec_so_that_a_script_does_not_wait_for_its_import() -> None:
    code = (
        "import sys\n"
        "from steptime.core.codec import encode\n"
        "from steptime.core.note import Note\n"
        "encode(Note(code='x'))\n"
        "print('msgspec' in sys.modules)"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert done.stdout == "False\n", done.stderr
