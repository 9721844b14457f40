"""Sizes of a batch: what follows from those given, and the rules that forbid."""

import json

import pytest

from steptime.errors import BatchRuleError
from steptime.plan.batch import MAX_CHOICES, plan_batch
from steptime.plan.layout_rules import notes_on, pipeline_bubble, zero_bytes_per_parameter
from steptime.plan.learning_rate import advise_learning_rate
from steptime.plan.values.batch_values import GivenSizes
from steptime.report.blocks.fit.batch_report import NOTES


def only(**sizes):
    plan = plan_batch(GivenSizes(**sizes))
    assert plan.num_choices == 1
    return plan.choices[0]


def refusal(**sizes):
    with pytest.raises(BatchRuleError) as caught:
        plan_batch(GivenSizes(**sizes))
    assert caught.value.hint
    return caught.value


def test_the_worked_figures_of_the_book():
    # Item 44: 8 devices with micro-batch 4, then with a layout, then with accumulation.
    assert only(devices=8, micro_batch=4, grad_accum_steps=1).global_batch_size == 32
    laid_out = only(
        devices=8, micro_batch=4, grad_accum_steps=1, tensor_parallel=2, pipeline_parallel=2
    )
    assert (laid_out.data_parallel, laid_out.global_batch_size) == (2, 8)
    assert only(devices=8, micro_batch=4, grad_accum_steps=4).global_batch_size == 128


def test_a_pipelines_chunks_are_its_accumulation():
    sizes = only(micro_batch=8, grad_accum_steps=32, data_parallel=4, pipeline_parallel=4)

    assert sizes.global_batch_size == 1024
    assert sizes.bubble_fraction == pytest.approx(3 / 32)


@pytest.mark.parametrize("missing", ["micro_batch", "grad_accum_steps", "data_parallel"])
def test_any_three_sizes_give_the_fourth(missing):
    whole = {
        "global_batch_size": 512,
        "micro_batch": 8,
        "grad_accum_steps": 16,
        "data_parallel": 4,
    }
    given = {name: size for name, size in whole.items() if name != missing}

    found = only(**given)

    assert {name: getattr(found, name) for name in whole} == whole
    assert found.local_batch_size == 128


def test_sizes_that_are_open_are_listed_with_the_largest_micro_batch_first():
    plan = plan_batch(GivenSizes(global_batch_size=12, data_parallel=2))

    assert [(one.micro_batch, one.grad_accum_steps) for one in plan.choices] == [
        *((6, 1), (3, 2), (2, 3), (1, 6))
    ]
    assert all(one.global_batch_size == 12 for one in plan.choices)


def test_many_choices_are_counted_and_few_listed():
    plan = plan_batch(GivenSizes(global_batch_size=5040))

    assert len(plan.choices) == MAX_CHOICES
    assert plan.num_choices == 810  # 2^4 x 3^2 x 5 x 7 into three ordered factors: 15 * 6 * 3 * 3


def test_what_was_taken_to_be_one_is_said():
    plan = plan_batch(GivenSizes(micro_batch=8))

    assert plan.choices[0].global_batch_size == 8
    assert plan.assumed == ("grad_accum_steps", "data_parallel")


@pytest.mark.parametrize(
    ("sizes", "rule"),
    [
        ({"grad_accum_steps": 2}, "too_little_given"),
        ({"global_batch_size": 0}, "whole_numbers"),
        ({"micro_batch": 1, "zero_stage": 4}, "zero_stages"),
        (
            {"global_batch_size": 100, "micro_batch": 8},
            "global_is_micro_by_accumulation_by_data_parallel",
        ),
        (
            {"global_batch_size": 64, "micro_batch": 8, "grad_accum_steps": 2, "data_parallel": 2},
            "global_is_micro_by_accumulation_by_data_parallel",
        ),
        ({"micro_batch": 1, "devices": 10, "tensor_parallel": 4}, "devices_by_layout"),
        (
            {"micro_batch": 1, "devices": 8, "data_parallel": 4},
            "data_parallel_is_devices_by_layout",
        ),
        ({"micro_batch": 1, "tensor_parallel": 4, "heads": 6}, "tensor_divides_heads"),
        ({"micro_batch": 1, "tensor_parallel": 4, "vocab": 50257}, "tensor_divides_vocab"),
        ({"micro_batch": 1, "tensor_parallel": 4, "kv_heads": 6}, "tensor_divides_kv_heads"),
        ({"micro_batch": 1, "tensor_parallel": 16, "devices_per_node": 8}, "tensor_stays_in_node"),
        ({"micro_batch": 1, "pipeline_parallel": 5, "layers": 12}, "pipeline_divides_layers"),
        ({"micro_batch": 1, "pipeline_parallel": 2, "zero_stage": 2}, "pipeline_takes_zero_1"),
    ],
)
def test_each_rule_is_named(sizes, rule):
    assert refusal(**sizes).rule == rule


def test_a_refusal_names_the_nearest_sizes_that_go():
    error = refusal(global_batch_size=100, micro_batch=8)

    assert "96 or 104" in error.hint


def test_key_heads_may_be_copied_and_embeddings_may_count_as_layers():
    assert only(micro_batch=1, tensor_parallel=8, kv_heads=4, heads=32)
    # BLOOM: 70 layers and both embeddings on 12 stages.
    assert only(micro_batch=2, pipeline_parallel=12, layers=70)


@pytest.mark.parametrize(("stage", "bytes_"), [(0, 18), (1, 7.5), (2, 4), (3, 2.25)])
def test_states_per_parameter_by_zero_stage(stage, bytes_):
    assert zero_bytes_per_parameter(stage, 8) == bytes_
    plan = plan_batch(GivenSizes(micro_batch=1, data_parallel=8, zero_stage=stage))
    assert plan.state_bytes_per_parameter == bytes_


def test_interleaved_stages_shrink_the_bubble():
    assert pipeline_bubble(4, 8) == 3 / 8
    assert pipeline_bubble(4, 8, virtual=3) == 1 / 8


@pytest.mark.parametrize(
    ("sizes", "note"),
    [
        ({"micro_batch": 1, "pipeline_parallel": 4, "layers": 8}, "naive_pipeline"),
        ({"micro_batch": 1, "pipeline_parallel": 4, "grad_accum_steps": 8}, "pipeline_bubble"),
        ({"micro_batch": 1, "zero_stage": 1}, "zero_alone"),
        (
            {"micro_batch": 1, "zero_stage": 2, "grad_accum_steps": 4, "data_parallel": 2},
            "zero_traffic",
        ),
        ({"micro_batch": 1, "grad_accum_steps": 8, "data_parallel": 2}, "ddp_traffic"),
        ({"micro_batch": 32, "zero_stage": 3, "devices": 1024}, "zero_global"),
        (
            {
                "micro_batch": 1,
                "tensor_parallel": 2,
                "pipeline_parallel": 2,
                "grad_accum_steps": 8,
                "heads": 4,
            },
            "fused_softmax",
        ),
    ],
)
def test_what_is_allowed_and_costs_is_noted_in_words(sizes, note):
    plan = plan_batch(GivenSizes(**sizes))

    found = {one.name: one for one in plan.notes}
    assert note in found
    assert NOTES[note](found[note].facts)


def test_zero_alone_forces_the_global_batch():
    # Item 112: 1,024 devices with micro-batch 32 make 32,768.
    plan = plan_batch(GivenSizes(micro_batch=32, zero_stage=3, devices=1024))

    assert plan.notes[-1].facts["least"] == 32768


def test_every_note_has_words():
    given = GivenSizes(micro_batch=1)
    assert notes_on(given, plan_batch(given).choices[0]) == ()


# -- learning rate


def test_sgd_scales_linearly_and_adam_by_the_square_root():
    sgd = advise_learning_rate("SGD", old_batch=256, new_batch=1024, learning_rate=0.1)
    adam = advise_learning_rate("AdamW", old_batch=256, new_batch=1024, learning_rate=3e-4)

    assert (sgd.rule, sgd.learning_rate) == ("linear", pytest.approx(0.4))
    assert (adam.rule, adam.learning_rate) == ("square_root", pytest.approx(6e-4))
    assert (adam.betas_factor, adam.epsilon_factor) == (4, 0.5)
    assert "1706.02677" in sgd.source
    assert "2205.10287" in adam.source


def test_an_optimizer_without_a_published_rule_gets_none():
    advice = advise_learning_rate("Lion", old_batch=64, new_batch=128, learning_rate=1e-4)

    assert (advice.rule, advice.factor, advice.learning_rate) == (None, None, None)


def test_a_rate_that_is_not_positive_is_refused():
    with pytest.raises(ValueError, match="learning_rate"):
        advise_learning_rate("sgd", old_batch=1, new_batch=2, learning_rate=0.0)


def test_a_plan_survives_json():
    from steptime.core.codec import from_json, to_json
    from steptime.plan.values.batch_values import BatchPlan

    plan = plan_batch(GivenSizes(micro_batch=2, grad_accum_steps=8, data_parallel=2))

    assert from_json(BatchPlan, json.loads(json.dumps(to_json(plan)))) == plan
