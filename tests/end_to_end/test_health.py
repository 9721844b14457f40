"""A number that goes wrong is reported with the update in which it did, as the script finds it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from end_to_end.conftest import RunSpecimen
from end_to_end.harness import needs_linux, needs_torch, rows, run_both_forked

pytestmark = [needs_torch, needs_linux]

AT, NUM_UPDATES = 12, 40
LINE = "scaler.scale(loss).backward()"

PLANTS = {
    "forward": "loss",
    "backward": "weights",
    "optimizer_state": "weights",
    "data": "loss",
    "division": "loss",
    "overflow": "loss",
    "log": "loss",
    "mask": "loss",
    "masked_row": "weights",
    "learning_rate": "loss",
    "embedding_row": "weights",
    "loss_scale": "skipped_updates",
    "clip": "gradient_norm",
}
"""Each way for a number to go wrong, and the value that shows it first."""


def findings_of(run: Any, cause: str = "non_finite") -> list[Any]:
    return [finding for finding in run.findings() if finding["cause"] == cause]


@pytest.mark.parametrize("plant", PLANTS)
def test_a_bad_number_opens_the_report_with_its_first_update(
    run_specimen: RunSpecimen, plant: str
) -> None:
    run = run_specimen("bad_numbers", "--plant", plant)
    first_bad = int(re.findall(r"first bad update (\d+)", run.stdout)[0])

    finding = run.findings()[0]
    evidence = {item["name"]: item["value"] for item in finding["evidence"]}
    assert (finding["cause"], finding["severity"]) == ("non_finite", "critical")
    assert finding["names"]["value"] == PLANTS[plant]
    assert first_bad in (AT, AT + 1)
    assert evidence["first_update"] == first_bad
    assert evidence["updates_wasted"] == NUM_UPDATES + 1 - first_bad
    assert "bad_numbers.py:" in finding["where"]
    assert finding["site"]["file"].endswith("bad_numbers.py")
    assert "guest_failures" not in {note["code"] for note in run.data["notes"]}


def test_a_masked_softmax_is_suspected_where_a_finite_loss_breaks_weights(
    run_specimen: RunSpecimen,
) -> None:
    broken = run_specimen("bad_numbers", "--plant", "masked_row").findings()[0]
    assert broken["names"]["masked"] == "queries"

    by_loss = run_specimen("bad_numbers", "--plant", "mask").findings()[0]
    assert "masked" not in by_loss["names"]


@pytest.mark.parametrize("plant", ["backward", "data"])
def test_plain_sgd_has_no_state_that_would_tell(run_specimen: RunSpecimen, plant: str) -> None:
    run = run_specimen("bad_numbers", "--plant", plant, "--optimizer", "sgd")

    (finding,) = findings_of(run)
    assert finding["evidence"][0] == {"name": "first_update", "value": AT, "unit": "count"}


@pytest.mark.parametrize("plant", ["nothing", "overflow_once"])
def test_a_training_whose_numbers_are_sound_has_no_such_finding(
    run_specimen: RunSpecimen, plant: str
) -> None:
    run = run_specimen("bad_numbers", "--plant", plant)

    assert findings_of(run) == []
    assert run.data["health"]["num_seen"] == NUM_UPDATES
    assert run.data["health"]["non_finite"] is None


def test_the_losses_are_those_of_the_script(run_specimen: RunSpecimen) -> None:
    run = run_specimen("bad_numbers", "--plant", "nothing")
    last = float(run.stdout.split("last loss ")[1])

    lines = rows(run.folder / "rank-0.jsonl")
    found = [row for line in lines if line["k"] == "v" for row in line["rows"]]
    assert found[-1][:3] == [NUM_UPDATES, 0, 0]
    assert found[-1][3] == pytest.approx(last, rel=1e-6)


def test_a_spike_is_found_with_its_line(run_specimen: RunSpecimen) -> None:
    run = run_specimen("bad_numbers", "--plant", "spike", "--at", "80", "--updates", "120")

    (finding,) = findings_of(run, "loss_spike")
    evidence = {item["name"]: item["value"] for item in finding["evidence"]}
    assert (evidence["first_update"], evidence["spike_updates"]) == (80, 4)
    assert finding["where_text"] == finding["site"]["text"] == LINE


@pytest.mark.slow("two ranks under torchrun")
def test_of_two_ranks_the_one_with_the_bad_batch_is_named(run_specimen: RunSpecimen) -> None:
    run = run_specimen("bad_rank", nproc=2)

    finding = run.findings()[0]
    evidence = {item["name"]: item["value"] for item in finding["evidence"]}
    assert (finding["cause"], finding["names"]["value"]) == ("non_finite", "loss")
    assert (evidence["first_update"], evidence["bad_rank"]) == (12, 1)
    assert evidence["updates_wasted"] == 19


@pytest.mark.parametrize("plant", ["data", "loss_scale", "clip"])
def test_a_broken_training_computes_what_it_computes_alone(tmp_path: Any, plant: str) -> None:
    from end_to_end.harness import SPECIMENS

    script = SPECIMENS / "bad_numbers.py"
    bare, observed = run_both_forked(tmp_path, "python", script, "--plant", plant)

    assert observed.stdout == bare.stdout
    assert b"first bad update 12" in bare.stdout
