"""What learns nothing, or is kept for nothing, is found in a run without any option."""

from __future__ import annotations

from typing import Any

import pytest

from end_to_end.conftest import RunSpecimen
from end_to_end.harness import needs_linux, needs_torch

pytestmark = [needs_torch, needs_linux]

CAUSES = {
    *("growing_graph", "unused_gradient", "unregistered_weights", "zero_gradient", "no_gradient"),
}
SLOW = pytest.mark.slow("a training for each way to learn nothing")


def found(run: Any) -> dict[str, Any]:
    assert "guest_failures" not in {note["code"] for note in run.data["notes"]}
    return {one["cause"]: one for one in run.findings() if one["cause"] in CAUSES}


@pytest.mark.parametrize(
    "plant",
    ["unused_gradient", *(pytest.param(p, marks=SLOW) for p in ("zero_gradient", "no_gradient"))],
)
def test_weights_that_learn_nothing_are_named(run_specimen: RunSpecimen, plant: str) -> None:
    (finding,) = found(run_specimen("idle_weights", "--plant", plant)).values()

    evidence = {item["name"]: item["value"] for item in finding["evidence"]}
    assert (finding["cause"], finding["severity"]) == (plant, "warning")
    assert finding["names"]["weights"] == "spare.weight, spare.bias"
    assert (evidence["num_weights"], evidence["num_all"]) == (2, 6)
    assert evidence["parameters"] == pytest.approx(68 / 280)


@SLOW
def test_layers_in_a_list_are_named_with_the_list(run_specimen: RunSpecimen) -> None:
    (finding,) = found(run_specimen("idle_weights", "--plant", "unregistered_weights")).values()

    assert (finding["cause"], finding["severity"]) == ("unregistered_weights", "warning")
    assert finding["names"] == {
        "weights": "layers.0.weight, layers.0.bias",
        "holders": "Net.layers",
    }


@pytest.mark.parametrize("plant", ["growing_graph", pytest.param("carried_state", marks=SLOW)])
def test_a_graph_that_is_kept_is_found_with_its_line(run_specimen: RunSpecimen, plant: str) -> None:
    (finding,) = found(run_specimen("idle_weights", "--plant", plant)).values()

    evidence = {item["name"]: item["value"] for item in finding["evidence"]}
    assert finding["cause"] == "growing_graph"
    assert (evidence["first_update"], evidence["last_update"]) == (9, 33)
    assert "loss.backward(" in finding["where_text"]


@pytest.mark.parametrize(
    "plant",
    [
        "nothing",
        *(pytest.param(p, marks=SLOW) for p in ("best_loss", "rarely", "unregistered_but_held")),
    ],
)
def test_a_sound_training_has_no_such_finding(run_specimen: RunSpecimen, plant: str) -> None:
    run = run_specimen("idle_weights", "--plant", plant)

    assert found(run) == {}
    assert run.data["health"]["weights"]["num"] == 6
    assert run.data["health"]["kept_graphs"]["are_kept"] is False


@SLOW
def test_rows_without_a_gradient_are_counted_in_a_run(run_specimen: RunSpecimen) -> None:
    run = run_specimen("dense_updates")

    (finding,) = [one for one in run.findings() if one["cause"] == "dense_updates"]
    evidence = {item["name"]: item["value"] for item in finding["evidence"]}
    assert evidence["num_rows"] == 100_000
    assert 32 < evidence["num_touched"] <= 64
    assert "optimizer.step()" in finding["where_text"]


@SLOW
@pytest.mark.parametrize("way", ["sparse", "small", "tied"])
def test_an_embedding_that_is_updated_as_it_must_be(run_specimen: RunSpecimen, way: str) -> None:
    run = run_specimen("dense_updates", "--way", way)

    assert "dense_updates" not in {one["cause"] for one in run.findings()}
    assert "guest_failures" not in {note["code"] for note in run.data["notes"]}


def test_overfitting_is_found_with_its_best_update(run_specimen: RunSpecimen) -> None:
    run = run_specimen("overfitting")

    (finding,) = [one for one in run.findings() if one["cause"] == "overfitting"]
    evidence = {item["name"]: item["value"] for item in finding["evidence"]}
    last = float(run.stdout.split("evaluation ")[1].split()[0])
    assert evidence["lowest_update"] < 100
    assert evidence["last_update"] == 180
    assert evidence["lowest_evaluation"] < evidence["last_evaluation"] <= 1.05 * last
    assert evidence["rise_low"] > 0
    assert run.data["health"]["evaluations"]["num"] == 10


@SLOW
def test_a_training_that_generalizes_is_not_overfitting(run_specimen: RunSpecimen) -> None:
    run = run_specimen("overfitting", "--sound")

    assert [one for one in run.findings() if one["cause"] == "overfitting"] == []
    evaluations = run.data["health"]["evaluations"]
    assert evaluations["gap"]["low"] <= evaluations["gap"]["estimate"]
