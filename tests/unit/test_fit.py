"""What a training would take otherwise, and what would make it fit."""

from __future__ import annotations

from typing import Any

import pytest

from report_cases import make_anatomy, make_part, out_of_memory
from steptime.core.codec import from_json, to_json
from steptime.measure.values.model.anatomy import (
    PARTS,
    Allocator,
    Anatomy,
    Death,
    Instant,
    MemoryPart,
    MemoryTimeline,
    RunPeak,
)
from steptime.plan.memory_fit import MODES, remedies, table_of, wanted_bytes

MIB = 1 << 20

# Bytes per parameter of stas00/ml-engineering: weights, optimizer, gradients, in all.
PUBLISHED = {
    "fp32, AdamW": 16,
    "fp32, SGD with momentum or Lion": 12,
    "half precision with fp32 master weights, AdamW": 18,
    "half precision with fp32 master weights, AdamW, half gradients": 16,
    "half precision with fp32 master weights, 8-bit AdamW": 12,
    "half precision with fp32 master weights, Lion or Adafactor": 14,
    "pure bf16, AdamW": 8,
}


def make(sizes: dict[str, int], **changes: Any) -> Anatomy:
    parts = tuple(make_part(name, sizes.get(name), missing="not_said") for name in PARTS)
    return make_anatomy(parts=parts, **changes)


def frees(anatomy: Anatomy) -> dict[str, int | None]:
    return {one.name: one.frees_bytes for one in remedies(anatomy)}


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_table_has_the_published_bytes_per_parameter(name: str) -> None:
    assert {mode.name: mode.total for mode in MODES}[name] == PUBLISHED[name]


def test_frozen_parameters_have_no_gradients_and_no_states() -> None:
    found = make({}, num_parameters=1000, num_trainable=10)

    assert {mode.name: size for mode, size in table_of(found)}["fp32, AdamW"] == 4000 + 120


def test_bytes_per_parameter_are_none_until_an_update_was_done() -> None:
    assert make({"weights": 4000}, num_parameters=1000).bytes_per_parameter is None


def test_bytes_per_parameter_leave_the_batch_out() -> None:
    sizes = {"weights": 4000, "gradients": 4000, "optimizer": 8000, "activations": 99}

    assert make(sizes, num_parameters=1000).bytes_per_parameter == 16


def test_half_the_batch_frees_half_of_what_grows_with_it() -> None:
    sizes = {"weights": 7, "activations": 60 * MIB, "logits": 30 * MIB, "inputs": 10 * MIB}

    assert frees(make(sizes))["half_micro_batch"] == 50 * MIB


def test_what_frees_memory_is_reckoned_for_the_largest_step() -> None:
    sizes = {"weights": 7, "activations": 60 * MIB, "logits": 30 * MIB, "inputs": 10 * MIB}
    parts = {"weights": 7, "activations": 60 * MIB, "logits": 30 * MIB, "inputs": 10 * MIB}
    peak = Instant(at_fraction=0.5, phase="backward", by_part=parts)
    largest = RunPeak(
        rank=0,
        how="computed",
        bytes=7 + 300 * MIB,
        low_bytes=7 + 100 * MIB,
        step=3,
        num_steps=9,
        num_followed=4,
    )
    found = make(sizes, timeline=MemoryTimeline(instants=(peak,), peak=peak), run_peak=largest)

    assert frees(found)["half_micro_batch"] == 150 * MIB
    assert frees(found)["chunked_loss"] == 90 * MIB
    assert frees(found)["activation_checkpointing"] == round(0.8 * 180 * MIB)
    assert frees(found)["autocast_bf16"] == 90 * MIB


def test_what_was_held_at_the_end_counts_where_it_is_more_than_in_the_step_before() -> None:
    sizes = {"activations": 60 * MIB, "logits": 0, "inputs": 0}
    found = make(sizes, timeline=None, death=Death(by_part={"activations": 500 * MIB}))

    assert frees(found)["half_micro_batch"] == 250 * MIB


def test_a_loss_in_chunks_is_named_where_logits_are_large_alone() -> None:
    assert "chunked_loss" not in frees(make({"activations": 90, "logits": 10}))
    assert frees(make({"activations": 50, "logits": 50}))["chunked_loss"] == 50


def test_autocast_frees_nothing_of_activations_that_are_half_already() -> None:
    part = MemoryPart(name="activations", bytes=100, by_dtype={"bf16": 100})

    assert "autocast_bf16" not in frees(make_anatomy(parts=(part,)))


def test_an_eight_bit_optimizer_keeps_two_bytes_of_what_is_trained() -> None:
    found = make({"optimizer": 8000}, num_parameters=1000, num_trainable=1000)

    assert frees(found)["optimizer_8bit"] == 6000


def test_states_that_are_sharded_already_are_not_sharded_once_more() -> None:
    part = MemoryPart(name="weights", bytes=100, by_dtype={"fp32": 100}, is_sharded=True)

    assert "sharding" not in frees(make_anatomy(parts=(part,)))


def test_fragments_are_what_is_reserved_and_not_in_one_piece() -> None:
    allocator = Allocator(allocated=60, reserved=100, largest_free_block=25)

    assert frees(make({}, allocator=allocator))["expandable_segments"] == 15


def test_what_was_not_measured_is_named_without_a_figure() -> None:
    found = make({"weights": 4000}, num_updates=0)

    assert frees(found)["half_micro_batch"] is None
    assert frees(found)["optimizer_8bit"] is None


def test_a_remedy_is_enough_if_it_frees_what_was_asked_for() -> None:
    died = out_of_memory()
    assert died.memory is not None
    wanted = wanted_bytes(died)
    found = {one.name: one.is_enough for one in remedies(died.memory, wanted_bytes=wanted)}

    assert wanted == 616_562_688
    assert found["half_micro_batch"] is True
    assert found["sharding"] is False
    assert found["optimizer_8bit"] is None


def test_an_anatomy_survives_json() -> None:
    assert from_json(Anatomy, to_json(make_anatomy())) == make_anatomy()
