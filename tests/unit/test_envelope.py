"""The document of a run, the envelope around each, and the schema that describes them."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from jsonschema.exceptions import ValidationError

from documents import check_document, check_fits
from report_cases import CASES, healthy, no_steps
from steptime.app.run.describe_run import describe_run
from steptime.core.codec import render
from steptime.core.process_end import ProcessEnd, RunState
from steptime.diagnose.diagnosis import diagnose
from steptime.diagnose.values.finding import BottleneckKind, Severity
from steptime.diagnose.values.reach_values import Picture, Roofline, Waterfall
from steptime.errors import NotFoundError
from steptime.measure.values.measurement import INNER_PHASES, PHASES, Measurement
from steptime.measure.values.run_summary import RunSummary
from steptime.report.document.envelope import (
    Envelope,
    ErrorItem,
    Status,
    enclose,
    error_envelope,
)
from steptime.report.document.json_schema import DOCUMENTS, json_schema, take_apart
from steptime.report.document.listings import ListDocument
from steptime.report.document.run_document import RunDocument, run_envelope

KINDS = {
    "profiled": ("BALANCED", [None]),
    "healthy": ("COMPUTE_BOUND", [None]),
    "input_bound": ("INPUT_BOUND", ["worker_fetch"]),
    "straggler": ("STRAGGLER", ["backward"]),
    "killed": ("COMPUTE_BOUND", [None]),
    "no_steps": ("INCONCLUSIVE", ["no_steps"]),
    "contended": ("COMPUTE_BOUND", ["neighbor", None]),
    "stalled": ("STRAGGLER", ["stalled_rank", "backward"]),
    "desynced": ("STRAGGLER", ["stalled_rank", "desync", "backward"]),
    "dissected": ("COMPUTE_BOUND", [None]),
    "out_of_memory": ("MEMORY_CAPACITY_BOUND", ["out_of_memory", "no_steps"]),
    "counted": ("BALANCED", [None]),
}


def envelope_of(measurement: Measurement) -> Envelope[RunDocument]:
    made = describe_run(measurement, diagnose(measurement))
    return run_envelope(made, command="run", exit_code=0)


def document(name: str = "healthy", **changes: Any) -> dict[str, Any]:
    return check_document(envelope_of(replace(CASES[name](), **changes)), "run")


def phase(data: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = (one for one in data["measurement"]["phases"] if one["name"] == name)
    return dict(found)


@pytest.mark.parametrize("name", CASES)
def test_every_document_fits_the_schema_and_has_no_key_it_does_not_describe(name: str) -> None:
    found = document(name)

    measured, diagnosis = found["data"]["measurement"], found["data"]["diagnosis"]
    kind, causes = KINDS[name]
    assert diagnosis["kind"] == kind
    assert [finding["cause"] for finding in diagnosis["findings"]] == causes
    assert measured["num_steps"] == CASES[name]().num_steps
    assert {one["name"] for one in measured["phases"]} <= {*PHASES, *INNER_PHASES}
    assert found["status"] == ("ok" if measured["end"]["state"] == "finished" else "partial")


def test_what_was_measured_beside_the_steps_is_in_the_document() -> None:
    profile = document("profiled")["data"]["measurement"]["profile"]
    assert profile["ranks"][0]["devices"][0]["idle_s"] == 0.0118
    (stall,) = document("stalled")["data"]["measurement"]["stalls"]
    assert stall["culprits"] == [1]
    assert [rank["waits_in"] for rank in stall["ranks"]] == ["collective", "lock"]
    (error,) = document("out_of_memory")["data"]["measurement"]["errors"]
    assert (error["type"], error["is_memory"]) == ("RuntimeError", True)
    (note,) = document("killed")["data"]["measurement"]["notes"]
    assert note["code"] == "ended_abruptly"
    assert document("contended")["data"]["measurement"]["host"]["others_cores"] > 1


def test_figures_that_programs_would_have_to_compute_are_there() -> None:
    data = document("counted")["data"]
    sums = {"model_flops": 38654705664, "total": 38654705664, "is_complete": None}
    useful = ("useful_fraction", "useful_work_fraction", "useful_mfu")
    unseen = (*useful, "tokens_per_s", "useful_tokens_per_s")
    assert data["work"] == sums | dict.fromkeys(unseen)
    assert data["mfu"]["fraction"] == pytest.approx(0.004885, rel=1e-3)
    assert document()["data"]["mfu"]["missing"] == "not_counted"
    fit = document("dissected")["data"]["memory_fit"]
    assert fit["states_bytes"] == 1992294400
    assert fit["remedies"][0]["name"] == "half_micro_batch"
    assert {"name", "bytes_per_parameter", "bytes"} == set(fit["would_take"][0])
    assert document()["data"]["memory_fit"] is None


def test_the_picture_is_in_the_document_where_it_was_made() -> None:
    assert document()["data"]["waterfall"] is None
    picture = Picture(
        roofline=Roofline(missing="no_ceilings"), waterfall=Waterfall(missing="no_ceilings")
    )
    made = run_envelope(describe_run(healthy(), None, picture), command="show", exit_code=0)
    data = check_document(made, "run")["data"]
    assert (data["roofline"]["points"], data["waterfall"]["missing"]) == ([], "no_ceilings")


def test_an_error_has_no_data_and_keeps_its_code_and_hint() -> None:
    error = NotFoundError("there is no run `x`.", hint="List them: steptime list")
    found = check_document(error_envelope("show", error), "run")
    assert (found["status"], found["exit_code"], found["data"]) == ("error", 2, None)
    assert found["errors"] == [
        {
            "code": "not_found",
            "message": "there is no run `x`.",
            "hint": "List them: steptime list",
        }
    ]


def test_the_list_of_runs_fits_the_schema() -> None:
    row = RunSummary(
        run_id="20261120-101500-3fa2",
        started_unix_s=None,
        command=("python", "a.py"),
        state=RunState.RUNNING,
    )
    made = ListDocument(store="/x/.steptime", runs=(row,), studies=(), others=())
    found = check_document(enclose("list", made), "list")
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
    assert found["status"] == "partial"
    assert [error["code"] for error in found["errors"]] == [code]


@pytest.mark.parametrize(
    "wrong",
    [
        {"errors": [{"code": "x", "message": "x", "hint": None}]},
        {"status": "partial"},
        {"status": "error"},
        {"data": None},
        {"schema": 1},
        {"status": "fine"},
    ],
)
def test_a_document_whose_status_is_not_true_does_not_fit_the_schema(wrong: Any) -> None:
    with pytest.raises(ValidationError):
        check_fits(document() | wrong, "run")


def test_keys_are_sorted_and_the_text_is_one_ascii_document() -> None:
    measurement = replace(healthy(), command=("python", "tränén.py", "\udc80"))
    text = render(envelope_of(measurement))
    read = json.loads(text)
    assert text.isascii()
    assert list(read) == sorted(read)
    assert list(read["data"]["measurement"]) == sorted(read["data"]["measurement"])
    assert text.endswith("}\n")
    assert read["data"]["measurement"]["command"] == ["python", "tränén.py", "\udc80"]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_not_finite_is_null(value: float) -> None:
    found = document(copies_per_step=value)
    assert found["data"]["measurement"]["copies_per_step"] is None


def test_a_phase_that_was_not_observed_has_a_reason_and_no_time() -> None:
    data = document()["data"]
    assert (phase(data, "h2d")["median_s"], phase(data, "h2d")["missing"]) == (
        None,
        "not_applicable_on_cpu",
    )
    assert phase(data, "forward")["median_s"] == 0.0412
    assert phase(data, "forward")["missing"] is None


def test_a_phase_measured_as_zero_is_zero_and_not_null() -> None:
    assert phase(document("input_bound")["data"], "gradient_processing")["median_s"] == 0.0


def test_a_run_without_steps_has_every_key() -> None:
    data = check_document(
        run_envelope(describe_run(no_steps(), None), command="run", exit_code=0), "run"
    )["data"]
    assert data.keys() == document()["data"].keys()
    assert data["measurement"].keys() == document()["data"]["measurement"].keys()
    assert data["diagnosis"] is data["measurement"]["steady"] is None
    assert data["measurement"]["overhead"] is None


def test_the_contract_of_a_run_is_kept() -> None:
    data = document("killed")["data"]["measurement"]
    assert (data["num_steps"], data["num_optimizer_updates"], data["num_backwards"]) == (
        212,
        212,
        848,
    )
    assert set(data["steady"]["step_time_s"]) == {"estimate", "low", "high", "n"}
    assert set(data["steady"]["step_cpu_s"]) == {"estimate", "low", "high", "n"}
    assert set(data["overhead"]) == {"cpu_s_per_step", "fraction"}
    assert data["end"] == {"state": "killed", "exit_code": None, "signal": 9}
    finding = document("input_bound")["data"]["diagnosis"]["findings"][0]
    assert {"kind", "cause", "severity", "evidence", "where", "headroom_speedup", "missing"} <= set(
        finding
    )


def test_the_schema_knows_every_word_the_code_can_say() -> None:
    defs = json_schema("run")["$defs"]
    assert set(defs["BottleneckKind"]["enum"]) == {kind.value for kind in BottleneckKind}
    assert set(defs["Severity"]["enum"]) == {severity.value for severity in Severity}
    assert set(defs["RunState"]["enum"]) == {state.value for state in RunState}


def test_a_schema_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="`name` must be one of run, tune"):
        json_schema("walk")


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_key_of_every_document_is_described(name: str) -> None:
    schema = json_schema(name)
    parts = {"the envelope": schema, **schema["$defs"]}
    undescribed = [
        f"{where}.{key}"
        for where, part in parts.items()
        for key, inner in part.get("properties", {}).items()
        if not inner.get("description")
    ]

    assert undescribed == []
    assert [where for where, part in parts.items() if not part["description"]] == []


def test_a_docstring_is_taken_apart_into_its_sentences_and_its_keys() -> None:
    text = """What it is.

        More of it.

        Attributes:
            low, high: the ends,
                of an interval.
            n: how many: all, or None.
        """

    assert take_apart(text) == (
        "What it is. More of it.",
        {
            "low": "the ends, of an interval.",
            "high": "the ends, of an interval.",
            "n": "how many: all, or null.",
        },
    )
    assert take_apart("Nothing more.") == ("Nothing more.", {})


def test_the_status_follows_from_errors_and_data() -> None:
    item = ErrorItem(code="x", message="x")
    data = describe_run(healthy(), None)
    failed: Envelope[None] = enclose("run", None, exit_code=1, errors=(item,))
    assert failed.status is Status.ERROR
    assert enclose("run", data, exit_code=1, errors=(item,)).status is Status.PARTIAL
    assert enclose("run", data).status is Status.OK
