"""The document of a study: what programs read of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from documents import check_document
from steptime.errors import RecipeError
from steptime.report.document.envelope import enclose, error_envelope
from steptime.report.document.listings import ListDocument, summarize
from steptime.report.document.study_documents import StudyDocument, study_envelope
from steptime.tune.values.study_values import Study, TrialEnd
from study_cases import CASES, faster, nothing_helps, too_noisy


def document(study: Study, **given: Any) -> dict[str, Any]:
    recipe_file = given.pop("recipe_file", None)
    shown = StudyDocument(study=study, recipe_file=recipe_file)
    envelope = study_envelope(shown, command="tune", exit_code=0, **given)
    return check_document(envelope, "tune")


@pytest.mark.parametrize("name", CASES)
def test_every_document_fits_the_schema_and_has_no_key_it_does_not_describe(name: str) -> None:
    study = CASES[name]()

    data = document(study)["data"]

    assert data["study"]["outcome"] == study.outcome
    assert [trial["end"] for trial in data["study"]["trials"]] == [t.end for t in study.trials]
    assert len(data["study"]["choices"]) == len(study.choices)
    assert data["recipe_file"] is None


def test_the_contract_of_tune_is_kept() -> None:
    data = document(faster(), recipe_file="tuned.toml")["data"]
    assert data["recipe_file"] == "tuned.toml"
    data = data["study"]
    assert data["outcome"] == "faster"
    assert data["speedup"] == {"estimate": 1.52, "low": 1.47, "high": 1.58, "n": 8}
    assert data["noise_floor"] == 0.012
    assert (data["quality"]["outcome"], data["quality"]["level"]) == ("PASS", "L2")
    assert data["recipe"] == [
        {"name": "autocast", "settings": {"dtype": "bf16"}},
        {"name": "fused_optimizer", "settings": {"mode": "fused"}},
    ]
    assert {"state", "end", "speedup", "quality", "reason"} <= set(data["trials"][0])
    assert [item["name"] for item in data["not_tried"]] == [
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

    found = check_document(error_envelope("tune", error), "tune")

    assert (found["status"], found["data"]) == ("error", None)
    assert found["errors"][0]["hint"] == "Name another file."


def test_the_list_of_studies_fits_the_schema() -> None:
    rows = tuple(summarize(study) for study in (faster(), too_noisy()))

    made = ListDocument(store="/x", runs=(), studies=rows, others=())
    found = check_document(enclose("list", made), "list")

    assert [study["outcome"] for study in found["data"]["studies"]] == ["faster", "too_noisy"]
    assert [study["num_trials"] for study in found["data"]["studies"]] == [6, 2]
