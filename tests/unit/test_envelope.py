import copy
import json
import math
import re
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from report_cases import CASES, healthy, input_bound, no_steps
from steptime import errors
from steptime.core.process_end import ProcessEnd, RunState
from steptime.diagnose.diagnosis import diagnose
from steptime.diagnose.values.finding import BottleneckKind, Severity
from steptime.errors import NotFoundError
from steptime.measure.values.measurement import INNER_PHASES, PHASES, SPANS, Measurement
from steptime.measure.values.run_summary import RunSummary
from steptime.report.document.envelope import (
    Envelope,
    ErrorItem,
    error_envelope,
    render_json,
    run_data,
    run_envelope,
    runs_data,
)

SCHEMAS = resources.files("steptime.report") / "schema"
SCHEMA = json.loads((SCHEMAS / "run.schema.json").read_text())


def document(name: str = "healthy", **changes: Any) -> dict[str, Any]:
    return parse(envelope_of(replace(CASES[name](), **changes)))


def envelope_of(measurement: Measurement) -> Envelope:
    return run_envelope(measurement, diagnose(measurement), command="run", exit_code=0)


def parse(envelope: Envelope) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(render_json(envelope))
    return parsed


def check(instance: dict[str, Any], schema: Any = SCHEMA) -> None:
    Draft202012Validator(schema).validate(instance)


def closed(schema: Any) -> Any:
    """The schema with no key allowed but those it describes."""
    schema = copy.deepcopy(schema)
    todo = [schema]
    while todo:
        part = todo.pop()
        if isinstance(part, dict):
            if "properties" in part and "required" in part:
                part["additionalProperties"] = False
            todo += part.values()
        elif isinstance(part, list):
            todo += part
    return schema


def test_the_schema_is_a_valid_schema() -> None:
    Draft202012Validator.check_schema(SCHEMA)


def test_the_example_is_what_the_code_makes_and_fits_the_schema(check_golden: Any) -> None:
    text = render_json(envelope_of(input_bound()))
    with resources.as_file(SCHEMAS / "run.example.json") as path:
        check_golden(path, text)
    check(json.loads(text))


@pytest.mark.parametrize("name", CASES)
def test_every_document_fits_the_schema_and_has_no_key_it_does_not_describe(name: str) -> None:
    check(document(name))
    check(document(name), closed(SCHEMA))


@pytest.mark.parametrize("name", CASES)
def test_the_documents_are_golden(name: str, check_golden: Any) -> None:
    check_golden(f"{name}.json", render_json(envelope_of(CASES[name]())))


def test_an_error_has_no_data_and_keeps_its_code_and_hint() -> None:
    error = NotFoundError("there is no run `x`.", hint="List them: steptime runs")
    found = parse(error_envelope("show", error))
    check(found, closed(SCHEMA))
    assert (found["status"], found["exit_code"], found["data"]) == ("error", 2, None)
    assert found["errors"] == [
        {
            "code": "not_found",
            "message": "there is no run `x`.",
            "hint": "List them: steptime runs",
        }
    ]


def test_the_list_of_runs_fits_the_schema() -> None:
    row = RunSummary(
        run_id="20261120-101500-3fa2",
        started_unix_s=None,
        command=("python", "a.py"),
        state=RunState.RUNNING,
    )
    found = parse(Envelope(command="runs", exit_code=0, data=runs_data("/x/.steptime", [row])))
    check(found, closed(SCHEMA))
    assert found["data"]["runs"][0]["num_steps"] is None


@pytest.mark.parametrize(
    ("end", "code"),
    [
        (ProcessEnd(state=RunState.FAILED, exit_code=3), "script_failed"),
        (ProcessEnd(state=RunState.KILLED, signal=9), "script_killed"),
        (ProcessEnd(state=RunState.RUNNING), "run_unfinished"),
        (ProcessEnd(state=RunState.UNKNOWN), "run_unfinished"),
    ],
)
def test_a_run_that_did_not_finish_in_order_is_partial(end: ProcessEnd, code: str) -> None:
    found = document(end=end)
    check(found)
    assert found["status"] == "partial"
    assert [error["code"] for error in found["errors"]] == [code]


def test_a_run_that_finished_is_ok() -> None:
    assert document()["status"] == "ok"


def test_an_ok_document_with_errors_does_not_fit_the_schema() -> None:
    found = document() | {"errors": [{"code": "x", "message": "x", "hint": None}]}
    with pytest.raises(ValidationError):
        check(found)


def test_keys_are_sorted_and_the_text_is_one_ascii_document() -> None:
    measurement = replace(healthy(), command=("python", "tränén.py", "\udc80"))
    text = render_json(envelope_of(measurement))
    assert text.isascii()
    assert list(json.loads(text)) == sorted(json.loads(text))
    assert text.endswith("}\n")
    assert json.loads(text)["data"]["command"] == ["python", "tränén.py", "\udc80"]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_not_finite_is_null(value: float) -> None:
    found = document(copies_per_step=value)
    check(found)
    assert found["data"]["copies_per_step"] is None


def test_every_phase_has_its_key_and_the_unobserved_are_null_with_a_reason() -> None:
    data = document()["data"]
    assert set(data["phases"]) == {*PHASES, *INNER_PHASES}
    assert data["phases"]["h2d"] is None
    assert data["phases_missing"]["h2d"] == "not_applicable_on_cpu"
    assert data["phases"]["forward"]["median_s"] == 0.0412


def test_a_phase_measured_as_zero_is_zero_and_not_null() -> None:
    phase = document("input_bound")["data"]["phases"]["gradient_processing"]
    assert phase["median_s"] == 0.0


def test_a_run_without_steps_has_every_key() -> None:
    data = run_data(no_steps(), None)
    assert data.keys() == document()["data"].keys()
    assert data["diagnosis"] is data["steady"] is data["overhead"] is None


def test_the_contract_of_the_issue_is_kept() -> None:
    data = document("killed")["data"]
    assert (data["num_steps"], data["num_optimizer_updates"], data["num_backwards"]) == (
        212,
        212,
        848,
    )
    assert set(data["steady"]["step_time_s"]) == {"estimate", "low", "high", "n"}
    assert set(data["steady"]["step_cpu_s"]) == {"estimate", "low", "high", "n"}
    assert {"median_s", "fraction"} <= set(data["phases"]["forward"])
    assert set(data["overhead"]) == {"cpu_s_per_step", "fraction"}
    assert data["end"] == {"state": "killed", "exit_code": None, "signal": 9}
    finding = document("input_bound")["data"]["diagnosis"]["findings"][0]
    assert set(finding) == {
        "kind",
        "cause",
        "severity",
        "evidence",
        "where",
        "headroom_speedup",
        "missing",
    }


def test_the_schema_knows_every_word_the_code_can_say() -> None:
    defs = SCHEMA["$defs"]
    assert set(defs["phases"]["properties"]) == {*PHASES, *INNER_PHASES}
    assert set(defs["run"]["properties"]["spans"]["properties"]) == set(SPANS)
    assert {k.value for k in BottleneckKind} <= set(defs["diagnosis"]["properties"]["kind"]["enum"])
    severities = defs["finding"]["properties"]["severity"]["enum"]
    assert severities == [s.value for s in Severity]
    assert set(defs["end"]["properties"]["state"]["enum"]) == {s.value for s in RunState}


def test_every_key_of_the_schema_is_described() -> None:
    def undescribed(part: Any, where: str) -> list[str]:
        found = []
        for name, inner in part.get("properties", {}).items():
            is_described = inner.get("description") or "$ref" in inner
            found += [] if is_described else [f"{where}.{name}"]
            found += undescribed(inner, f"{where}.{name}")
        return found

    parts = {"document": SCHEMA, **SCHEMA["$defs"]}
    assert [name for key, part in parts.items() for name in undescribed(part, key)] == []


def test_an_envelope_with_errors_and_data_is_partial() -> None:
    item = ErrorItem(code="x", message="x")
    assert Envelope(command="run", exit_code=1, errors=(item,)).status == "error"
    assert Envelope(command="run", exit_code=1, errors=(item,), data={}).status == "partial"


def test_the_page_on_json_names_every_key_and_every_error_code() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "json.md").read_text("utf-8")
    keys = {
        key for part in (SCHEMA, *SCHEMA["$defs"].values()) for key in part.get("properties", ())
    }
    words = set(re.findall(r"[a-z0-9_]+", page))
    assert keys <= words
    codes = {error.code for error in (errors.SteptimeError, *all_errors(errors.SteptimeError))}
    assert codes <= words


def all_errors(root: type[errors.SteptimeError]) -> list[type[errors.SteptimeError]]:
    return [e for sub in root.__subclasses__() for e in (sub, *all_errors(sub))]
