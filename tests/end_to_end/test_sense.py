"""Is it training what you think: each fault is named, and odd trainings that are right are not."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from end_to_end.harness import SCRIPTS, needs_linux, needs_torch, start_bare

pytestmark = [needs_torch, needs_linux]

SCRIPT = SCRIPTS / "odd_trainings.py"
KINDS = {
    node.name: {one.id for one in node.decorator_list if isinstance(one, ast.Name)}
    for node in ast.parse(SCRIPT.read_text()).body
    if isinstance(node, ast.FunctionDef)
}
HEALTHY = [name for name, kinds in KINDS.items() if "healthy" in kinds]
FAULTY = {
    "never_cleared": "uncleared_gradients",
    "one_of_two_never_cleared": "uncleared_gradients",
    "schedule_per_micro_batch": "schedule_too_fast",
    "schedule_too_short": "rate_of_zero",
    "the_scheduler_is_never_stepped": "unmoved_schedule",
    "evaluation_mode_is_left_on": "updates_in_evaluation",
    "evaluation_mode_until_the_next_epoch": "updates_in_evaluation",
    "keeps_every_output": "kept_outputs",
    "keeps_a_view_of_every_output": "kept_outputs",
    "mean_square_of_two_shapes": "broadcast_loss",
    "absolute_error_of_two_shapes": "broadcast_loss",
    "huber_of_two_shapes_turned": "broadcast_loss",
    "by_hand_of_two_shapes": "broadcast_loss",
    "answers_are_masked_away": "rows_without_label",
    "answers_are_masked_away_by_class": "rows_without_label",
    "a_part_stays_in_evaluation_mode": "updates_in_evaluation",
    "the_last_batches_are_cleared": "left_over_batches",
    "the_last_batches_join_the_next_update": "left_over_batches",
    "means_of_unlike_texts_are_equals": "unequal_micro_batches",
    "workers_draw_the_same": "repeated_draws",
    "workers_seed_alike_in_each_epoch": "reseeded_draws",
    "each_worker_yields_everything": "duplicated_samples",
    "the_epoch_does_not_reach_the_workers": "stale_number",
    "the_sampler_is_never_told_the_epoch": "same_order",
}

Found = Mapping[str, list[dict[str, Any]]]


pytestmark = [
    pytest.mark.core,
    pytest.mark.slow("all trainings run in one process, which the first test starts"),
]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    """What was found of each training; all of them run in one process."""
    folder: Path = tmp_path_factory.mktemp("odd")
    done = start_bare(folder, "python", SCRIPT, folder, folder / "found.json").finish()
    assert done.exit_code == 0, done.stderr.decode()[-3000:]
    told: Found = json.loads((folder / "found.json").read_text())
    return told


def test_every_planted_fault_is_in_the_table() -> None:
    assert {name for name, kinds in KINDS.items() if "faulty" in kinds} == set(FAULTY)


@pytest.mark.parametrize("name", HEALTHY)
def test_an_odd_training_that_is_right_has_no_finding(found: Found, name: str) -> None:
    assert found[name] == []


@pytest.mark.parametrize("name", FAULTY)
def test_a_fault_is_named_and_nothing_else(found: Found, name: str) -> None:
    assert [one["cause"] for one in found[name]] == [FAULTY[name]]


def numbers(found: Found, name: str) -> dict[str, Any]:
    (one,) = found[name]
    return {**one["evidence"], **one["names"]}


def test_uncleared_gradients_are_counted_over_all_updates(found: Found) -> None:
    assert numbers(found, "never_cleared")["num_updates"] == 60
    assert found["never_cleared"][0]["line"] == "loss_of(model).backward()"


def test_a_schedule_per_micro_batch_has_its_updates_and_its_line(found: Found) -> None:
    seen = numbers(found, "schedule_per_micro_batch")

    assert (seen["first_update"], seen["num_updates"], seen["updates_wasted"]) == (30, 120, 91)
    assert seen["advances_per_update"] == 4
    assert found["schedule_per_micro_batch"][0]["line"] == "scheduler.step()"


def test_a_scheduler_that_nothing_steps_has_its_name_and_its_line(found: Found) -> None:
    seen = numbers(found, "the_scheduler_is_never_stepped")

    assert (seen["scheduler"], seen["rate"]) == ("CosineAnnealingLR", "0.01")
    assert (seen["num_epochs"], seen["num_updates"]) == (3, 210)
    assert "CosineAnnealingLR(one, 10)" in found["the_scheduler_is_never_stepped"][0]["line"]


def test_updates_in_evaluation_mode_begin_after_the_evaluation(found: Found) -> None:
    seen = numbers(found, "evaluation_mode_is_left_on")

    assert (seen["first_update"], seen["updates_seen"]) == (21, 40)
    assert seen["effect"] == "its batch statistics stay as they were and its dropout is off"
    assert numbers(found, "evaluation_mode_until_the_next_epoch")["updates_seen"] == 117
    assert found["evaluation_mode_is_left_on"][0]["line"] == "model.eval()"


@pytest.mark.parametrize("name", ["keeps_every_output", "keeps_a_view_of_every_output"])
def test_outputs_that_are_kept_have_their_number_and_bytes(found: Found, name: str) -> None:
    seen = numbers(found, name)

    assert (seen["num_outputs"], seen["each"]) == (12, 32 << 20)
    assert (seen["model"], seen["shape"]) == ("Wide", "(8388608)")


@pytest.mark.parametrize(
    ("name", "prediction", "target"),
    [
        ("mean_square_of_two_shapes", "(32, 1)", "(32,)"),
        ("huber_of_two_shapes_turned", "(32,)", "(32, 1)"),
        ("by_hand_of_two_shapes", "(32, 1)", "(32,)"),
    ],
)
def test_a_loss_of_two_shapes_has_both(
    found: Found, name: str, prediction: str, target: str
) -> None:
    seen = numbers(found, name)

    assert (seen["prediction"], seen["target"], seen["result"]) == (prediction, target, "(32, 32)")


def test_rows_without_a_label_have_their_share(found: Found) -> None:
    seen = numbers(found, "answers_are_masked_away")

    assert seen["rows_without"] == 0.75
    assert seen["useful"] == pytest.approx(0.125)


def test_batches_left_over_have_their_number_and_their_fate(found: Found) -> None:
    cleared = numbers(found, "the_last_batches_are_cleared")
    joined = numbers(found, "the_last_batches_join_the_next_update")

    for seen in (cleared, joined):
        assert (seen["num_parts"], seen["left"], seen["batches"]) == (4, 2, 10)
    assert cleared["fate"] == "their gradients are cleared before an update uses them"
    assert joined["fate"] == "the next update adds up 6 backward passes with them"


def test_what_workers_repeat_has_its_name(found: Found) -> None:
    seen = numbers(found, "workers_draw_the_same")
    stale = numbers(found, "the_epoch_does_not_reach_the_workers")

    assert (seen["generator"], seen["num_epochs"]) == ("Crops.rng", 3)
    assert (stale["attribute"], stale["last"], stale["kept"]) == ("Curriculum.epoch", 2, 0)
    assert numbers(found, "each_worker_yields_everything")["num_workers"] == 2


def test_an_order_that_repeats_has_its_epochs(found: Found) -> None:
    seen = numbers(found, "the_sampler_is_never_told_the_epoch")

    assert (seen["num_epochs"], seen["epoch"]) == (3, 0)
