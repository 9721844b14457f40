from __future__ import annotations

import json
import re
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from steptime.errors import RecipeError
from steptime.report.document.envelope import Envelope, error_envelope, render_json
from steptime.report.document.study_data import studies_data, study_envelope
from steptime.tune.values.study_values import Study, StudyOutcome, TrialEnd
from steptime.verify.values import Outcome
from study_cases import CASES, faster, mixed, nothing_helps, too_noisy
from unit.test_envelope import closed

SCHEMAS = resources.files("steptime.report") / "schema"
SCHEMA = json.loads((SCHEMAS / "tune.schema.json").read_text())


def text_of(study: Study, *, exit_code: int = 0, recipe_file: str | None = None) -> str:
    envelope = study_envelope(study, command="tune", exit_code=exit_code, recipe_file=recipe_file)
    return render_json(envelope)


def document(study: Study) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(text_of(study))
    return parsed


def check(instance: dict[str, Any]) -> None:
    Draft202012Validator(SCHEMA).validate(instance)
    Draft202012Validator(closed(SCHEMA)).validate(instance)


def test_the_schema_is_a_valid_schema() -> None:
    Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("name", CASES)
def test_every_document_fits_the_schema_and_has_no_key_it_does_not_describe(name: str) -> None:
    check(document(CASES[name]()))


@pytest.mark.parametrize("name", CASES)
def test_the_documents_are_golden(name: str, check_golden: Any) -> None:
    check_golden(f"study_{name}.json", text_of(CASES[name]()))


def test_the_example_is_what_the_code_makes_and_fits_the_schema(check_golden: Any) -> None:
    text = text_of(mixed(), recipe_file="tuned.toml")
    with resources.as_file(SCHEMAS / "tune.example.json") as path:
        check_golden(path, text)
    check(json.loads(text))


def test_the_contract_of_tune_is_kept() -> None:
    data = document(faster())["data"]
    assert data["outcome"] == "faster"
    assert data["speedup"] == {"estimate": 1.52, "low": 1.47, "high": 1.58, "n": 8}
    assert data["noise_floor"] == 0.012
    assert (data["quality"]["outcome"], data["quality"]["level"]) == ("PASS", "L2")
    assert data["recipe"] == {"autocast": {"dtype": "bf16"}, "fused_optimizer": {"mode": "fused"}}
    assert {"levers", "end", "speedup", "quality", "reason"} <= set(data["trials"][0])
    assert [item["lever"] for item in data["not_tried"]] == [
        "dataloader",
        "channels_last",
        "compile",
    ]
    assert data["study_id"]


@pytest.mark.parametrize(
    ("name", "status", "codes"),
    [
        ("faster", "ok", []),
        ("nothing_helps", "ok", []),
        ("too_noisy", "partial", ["too_noisy"]),
        ("interrupted", "partial", ["interrupted"]),
        ("failed_baseline", "partial", ["script_failed"]),
        ("mixed", "partial", ["trial_failed", "trial_timed_out", "trial_out_of_memory"]),
    ],
)
def test_what_broke_makes_a_study_partial(name: str, status: str, codes: list[str]) -> None:
    found = document(CASES[name]())
    assert found["status"] == status
    assert [error["code"] for error in found["errors"]] == codes


def test_a_study_whose_time_was_up_says_so() -> None:
    found = document(replace(nothing_helps(), outcome=None))
    assert [error["code"] for error in found["errors"]] == ["time_limit"]
    first = replace(nothing_helps().trials[0], end=TrialEnd.TIMED_OUT)
    found = document(replace(nothing_helps(), outcome=None, trials=(first,)))
    assert [error["code"] for error in found["errors"]] == ["time_limit"]


def test_a_failure_without_a_study_fits_the_schema() -> None:
    error = RecipeError("x exists and is not a recipe of Steptime.", hint="Name another file.")
    check(json.loads(render_json(error_envelope("tune", error))))


def test_the_list_of_studies_fits_the_schema() -> None:
    data = studies_data("/x/.steptime", [faster(), too_noisy()])
    found = json.loads(render_json(Envelope(command="study", exit_code=0, data=data)))
    check(found)
    assert [study["num_trials"] for study in found["data"]["studies"]] == [6, 2]


def test_the_schema_knows_every_word_the_code_can_say() -> None:
    defs = SCHEMA["$defs"]
    assert defs["trial"]["properties"]["end"]["enum"] == [end.value for end in TrialEnd]
    assert set(defs["quality"]["properties"]["outcome"]["enum"]) == {o.value for o in Outcome}
    outcomes = defs["study"]["properties"]["outcome"]["enum"]
    assert set(outcomes) == {None, *(outcome.value for outcome in StudyOutcome)}


def test_every_key_of_the_schema_is_described() -> None:
    for name, part in {"document": SCHEMA, **SCHEMA["$defs"]}.items():
        for key, inner in part.get("properties", {}).items():
            assert inner.get("description"), f"{name}.{key}"


def test_the_page_on_json_names_every_key_and_error_code() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "json.md").read_text("utf-8")
    keys = {
        key for part in (SCHEMA, *SCHEMA["$defs"].values()) for key in part.get("properties", ())
    }
    words = set(re.findall(r"[a-z0-9_]+", page))
    codes = {"too_noisy", "interrupted", "time_limit", "gate_not_met", "trial_failed"}
    codes |= {"trial_timed_out", "trial_out_of_memory"}
    assert keys | codes <= words
