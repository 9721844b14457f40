"""The work of a step by parameter and token, and the line that shows it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from report_cases import GPT_PHASES, make_measurement, make_rank
from steptime.diagnose.utilization import model_utilization
from steptime.measure.values.measurement import Measurement
from steptime.measure.values.model.anatomy import Anatomy, MemoryPart
from steptime.measure.values.model.work import Completeness, Count, WorkBasis
from steptime.measure.work.tokens import size_per_step, tokens_per_step
from steptime.plan.model_work import relate_work
from steptime.plan.values import ModelWork
from steptime.record.buckets import SIZES
from steptime.report.blocks.work.work_blocks import describe_model_work

PARAMS, TOKENS = 10**8, 8192
FULL = 6 * PARAMS * TOKENS


def make_count(model: int, recomputed: int = 0, **changes: Any) -> Count:
    forward = model // 3
    return Count(
        forward=forward,
        backward=model - forward,
        recomputed=recomputed,
        macs=model // 2,
        by_dtype={"bf16": model},
        **changes,
    )


def make_run(
    count: Count, *, trained: int = PARAMS, tokens: float | None = TOKENS, **changes: Any
) -> Measurement:
    rank = make_rank(GPT_PHASES, device="cuda", tokens_per_step=tokens)
    memory = Anatomy(
        rank=0,
        moment="update",
        num_updates=13,
        num_parameters=PARAMS,
        num_trainable=trained,
        parts=(MemoryPart(name="weights", bytes=4 * PARAMS),),
    )
    base = make_measurement(GPT_PHASES, ranks=(rank,), count=count, memory=memory)
    return replace(base, **changes)


def relate(run: Measurement) -> ModelWork | None:
    return relate_work(run, model_utilization(run))


def test_full_training_is_beside_six_n() -> None:
    found = relate(make_run(make_count(FULL + FULL // 10)))

    assert found is not None
    assert found.flops_per_parameter == pytest.approx(6.6)
    assert (found.by_parameters, found.six_n_fraction) == (6, None)
    text = describe_model_work(found)
    assert text == (
        "100 million parameters, all trained · 8,192 tokens per step · "
        "6.60 FLOPs per parameter per token (by parameters alone 6 N)"
    )


def test_frozen_weights_are_beside_four_n_and_mfu_by_six_n_is_higher() -> None:
    trained = PARAMS // 100
    run = make_run(make_count(4 * PARAMS * TOKENS), trained=trained, given_peaks={"bf16": 1000e12})
    found, mfu = relate(run), model_utilization(run)

    assert found is not None
    assert found.by_parameters == pytest.approx(4.02)
    assert found.flops_per_parameter == pytest.approx(4)
    assert mfu.fraction is not None
    assert found.six_n_fraction == pytest.approx(1.5 * mfu.fraction)
    text = describe_model_work(found)
    assert "1.0 % trained" in text
    assert "by parameters alone 4.02 N; 6 N if all were trained" in text
    assert "MFU is by operators; by 6 N per token it is " in text


def test_what_is_recomputed_is_hardware_s_work_and_not_the_model_s() -> None:
    found = relate(make_run(make_count(FULL, FULL // 3)))

    assert found is not None
    assert found.flops_per_parameter == pytest.approx(6)
    assert found.executed_per_parameter == pytest.approx(8)
    assert "6.00 FLOPs per parameter per token, 8.00 with what is recomputed" in (
        describe_model_work(found)
    )
    compiled = relate(make_run(make_count(FULL, FULL // 3, is_executed=False)))
    assert compiled is not None
    assert compiled.executed_per_parameter is None


def test_a_count_that_is_not_proven_whole_is_a_lower_bound() -> None:
    partly = Completeness(is_complete=False, num_matrices=2, num_met=1)
    found = relate(make_run(make_count(FULL // 2, completeness=partly)))

    assert found is not None
    assert "at least 3.00 FLOPs per parameter per token" in describe_model_work(found)


def test_without_tokens_there_are_the_parameters_alone() -> None:
    found = relate(make_run(make_count(FULL), tokens=None))

    assert found is not None
    assert describe_model_work(found) == "100 million parameters, all trained"


def test_where_the_mean_is_not_known_there_is_no_work_of_a_token() -> None:
    basis = WorkBasis(how="range", num_counted=2, num_steps=9, low_flops=1, high_flops=FULL)
    found = relate(make_run(make_count(FULL, basis=basis)))

    assert found is not None
    assert (found.tokens_per_step, found.flops_per_parameter) == (TOKENS, None)


def test_a_rank_that_holds_a_part_of_the_weights_does_not_know_n() -> None:
    run = make_run(make_count(FULL))
    assert run.memory is not None
    parts = (MemoryPart(name="weights", bytes=PARAMS, is_sharded=True),)

    assert relate(replace(run, memory=replace(run.memory, parts=parts))) is None
    assert relate(replace(run, memory=None)) is None
    assert relate(replace(run, count=None)) is None


# -- tokens


def make_steps(elements: list[int], **changes: Any) -> Any:
    columns = tuple(elements if name == "input_elements" else [0] * 4 for name in SIZES)
    sizes = SimpleNamespace(columns=columns, rounds=[(0, 2), (2, 3), (3, 4)])
    return SimpleNamespace(sizes=sizes, signals=SimpleNamespace(has_tokens=True), **changes)


def make_window(*index: int, blocks: Any = ()) -> Any:
    return SimpleNamespace(steps=SimpleNamespace(index=index), blocks=blocks)


def test_tokens_are_the_mean_of_the_window_s_steps_and_blocks() -> None:
    steps = make_steps([5, 5, 20, 30])

    assert tokens_per_step(steps, make_window(1, 2)) == 25
    assert tokens_per_step(steps, make_window(0)) == 10  # two micro-batches
    assert size_per_step(steps, make_window(0), "input_rows") is None  # of none was any seen
    sums = tuple(90 if name == "input_elements" else 0 for name in SIZES)
    block = SimpleNamespace(sizes=sums, num_steps=3)
    assert tokens_per_step(steps, make_window(2, blocks=(block,))) == (30 + 90) / 4


def test_inputs_that_are_no_tokens_and_an_older_record_have_none() -> None:
    steps = make_steps([5, 5, 20, 30])
    steps.signals.has_tokens = False
    assert tokens_per_step(steps, make_window(1)) is None

    steps = make_steps([5, 5, 20, 30])
    steps.sizes.columns = ()
    assert tokens_per_step(steps, make_window(1)) is None
    assert tokens_per_step(make_steps([0, 0, 0, 0]), make_window(1)) is None
