"""What a run says of the recipe that it trained with."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any

from rich.console import Console

from documents import check_document
from report_cases import healthy
from steptime.app.run.describe_run import describe_run
from steptime.core.codec import from_json, to_json
from steptime.core.interval import Interval
from steptime.measure.fold.run_fold import measure
from steptime.measure.values.measurement import Measurement
from steptime.measure.values.observations import Difference, LeverUse, RecipeUse
from steptime.report.blocks.run.finding_blocks import describe_proof
from steptime.report.document.run_document import run_envelope
from steptime.report.text.print_run import render
from unit.builders import make_end, make_head, make_row, read

USE = RecipeUse(
    path="tuned.toml",
    study_id="s",
    speedup=Interval(estimate=1.52, low=1.47, high=1.58, n=8),
    levers=(
        LeverUse(name="autocast", settings={"dtype": "bf16"}, is_in_guest=True),
        LeverUse(name="compile", settings={}, is_in_guest=True),
        LeverUse(name="allocator", settings={}, is_in_guest=False, error="not installed here"),
    ),
    differences=(Difference(what="num_cores", proven=2, here=4),),
    device="cuda",
)


def lever(name: str, **fields: Any) -> dict[str, Any]:
    return {"k": "lever", "n": 0, "name": name, "settings": {}, "state": None} | fields


def measured(*lines: dict[str, Any], use: RecipeUse | None = USE) -> Measurement:
    rows = {"k": "u", "rows": [make_row(n) for n in range(30)]}
    recipe = None if use is None else to_json(use)
    files = {"rank-0.jsonl": [make_head(), *lines, rows, make_end(30)]}
    return measure(read(files, recipe=recipe))


def notes(measurement: Measurement) -> dict[str, Any]:
    return {n.code: n.facts for n in measurement.notes if n.code.startswith("recipe")}


def test_a_run_without_a_recipe_says_nothing_of_one() -> None:
    assert measured(use=None).recipe is None
    assert notes(measured(use=None)) == {}


def test_levers_that_failed_before_or_in_the_training_are_named_with_the_reason() -> None:
    found = measured(lever("autocast", error=None), lever("compile", error="TypeError: x"))
    assert notes(found)["recipe_lever_failed"] == {
        "compile": "TypeError: x",
        "allocator": "not installed here",
    }
    assert "recipe_lever_unseen" not in notes(found)


def test_levers_of_which_nothing_was_told_are_named() -> None:
    assert notes(measured(lever("autocast")))["recipe_lever_unseen"] == {"levers": "compile"}


def test_a_state_of_an_experiment_is_no_lever_of_the_recipe() -> None:
    found = measured(lever("autocast", state=1, error="x"), lever("compile"))
    assert notes(found)["recipe_lever_unseen"] == {"levers": "autocast"}


def test_what_only_the_training_knows_is_compared_with_the_proof() -> None:
    assert notes(measured())["recipe_differs"] == {
        "num_cores": "2, now 4",
        "device": "cuda, now cpu",
    }


def test_the_report_and_the_document_name_the_recipe() -> None:
    measurement = replace(healthy(), recipe=USE)
    file = io.StringIO()
    document = describe_run(measurement, None)
    render(document, console=Console(file=file, width=100))
    assert (
        "recipe     tuned.toml: autocast bf16 + compile (proven 1.52x, 95 % interval 1.47x to "
        in (file.getvalue())
    )
    made = run_envelope(document, command="run", exit_code=0)
    recipe = check_document(made, "run")["data"]["measurement"]["recipe"]
    errors = {lever["name"]: lever["error"] for lever in recipe["levers"] if lever["error"]}
    assert errors == {"allocator": "not installed here"}
    assert recipe["speedup"] == {"estimate": 1.52, "low": 1.47, "high": 1.58, "n": 8}


def test_a_recipe_that_was_written_by_hand_is_not_said_to_be_proven() -> None:
    assert describe_proof(replace(USE, speedup=None)) == "nothing was proven of it"
    fitted = replace(USE, speedup=None, limit_bytes=1 << 30)
    assert describe_proof(fitted) == "proven to fit into 1.00 GiB"


def test_the_use_of_a_recipe_survives_json() -> None:
    assert from_json(RecipeUse, json.loads(json.dumps(to_json(USE)))) == USE
