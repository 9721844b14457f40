"""Counted work as a rate and as a share of a peak, and the lines of the report on it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from report_cases import GPT_PHASES, make_measurement, make_rank
from steptime.app.run.describe_run import describe_run
from steptime.core.codec import to_json
from steptime.core.units import format_flops
from steptime.diagnose.utilization import hardware_utilization, model_utilization
from steptime.measure.fold.run_fold import measure
from steptime.measure.values.measurement import Measurement
from steptime.measure.values.model.work import (
    ClassCount,
    Completeness,
    Count,
    UnmetMatrix,
    WorkOnDevice,
)
from steptime.report.blocks.work.work_blocks import REASONS, work_blocks
from told_blocks import told
from unit.builders import make_end, make_head, make_update, measure_lines, read

A_STEP_S = 0.1181
"""Sum of the phases' medians in `GPT_PHASES`."""


def make_count(**changes: Any) -> Count:
    base = Count(
        forward=4 * 10**12,
        backward=8 * 10**12,
        recomputed=3 * 10**12,
        macs=75 * 10**11,
        classes=(
            ClassCount(name="matmul", num=90, flops=12 * 10**12, moved_bytes=10**9, time_s=0.08),
            ClassCount(name="attention", num=10, flops=3 * 10**12, time_s=0.02),
            ClassCount(name="elementwise", num=300, pointwise_flops=10**9, time_s=0.01),
        ),
        by_dtype={"bf16": 15 * 10**12},
        covered_fraction=1.0,
    )
    return replace(base, **changes)


def make_run(count: Count | None, *, device_name: str | None = None, **changes: Any) -> Measurement:
    rank = make_rank(GPT_PHASES, device="cuda", device_name=device_name)
    return make_measurement(GPT_PHASES, ranks=(rank,), count=count, **changes)


H100 = "NVIDIA H100 80GB HBM3"


def text_of(m: Measurement) -> str:
    return " ".join(told(work_blocks(describe_run(m, None))).split())


def test_mfu_is_forward_and_backward_over_the_step_and_the_dense_peak() -> None:
    found = model_utilization(make_run(make_count(), device_name=H100))

    assert found.flops_per_s == pytest.approx(12e12 / A_STEP_S)
    assert found.fraction == pytest.approx(12e12 / A_STEP_S / 989e12)
    assert (found.device, found.dtype, found.missing) == ("H100 SXM 80GB", "bf16", None)
    assert found.convention == "operators"


def test_hfu_holds_what_was_recomputed_too() -> None:
    run = make_run(make_count(), device_name=H100)

    mfu, hfu = model_utilization(run), hardware_utilization(run)

    assert mfu.fraction is not None
    assert hfu.fraction == pytest.approx(mfu.fraction * 15 / 12)


def test_a_compiled_program_has_no_hfu() -> None:
    run = make_run(make_count(is_executed=False), device_name=H100)

    assert hardware_utilization(run).missing == "not_executed"
    assert model_utilization(run).fraction is not None
    assert "model FLOPs, not executed FLOPs" in text_of(run)


def test_the_masked_half_of_attention_gives_a_second_figure() -> None:
    found = model_utilization(make_run(make_count(masked_flops=15 * 10**11), device_name=H100))

    assert found.fraction is not None
    assert found.causal_fraction == pytest.approx(found.fraction * 0.9)


@pytest.mark.parametrize("name", [None, "cpu", "NVIDIA H100 80GB HBM3 MIG 3g.40gb"])
def test_an_unknown_device_has_a_rate_and_no_share(name: str | None) -> None:
    found = model_utilization(make_run(make_count(), device_name=name))

    assert found.flops_per_s is not None
    assert (found.fraction, found.peak_flops_per_s) == (None, None)
    assert found.missing == "unknown_device"


def test_where_ranks_differ_the_rate_is_of_their_mean_and_the_report_gives_their_range() -> None:
    stages = make_count(rank_flops=(15 * 10**12, 30 * 10**12))

    run = make_run(stages, device_name=H100, num_ranks=2)

    assert hardware_utilization(run).flops_per_s == pytest.approx(22.5e12 / A_STEP_S)
    assert model_utilization(run).flops_per_s == pytest.approx(18e12 / A_STEP_S)
    assert "on one rank, 15.0 TFLOP to 30.0 TFLOP on each" in text_of(run)


def test_a_type_without_a_peak_has_no_share() -> None:
    found = model_utilization(make_run(make_count(by_dtype={"fp64": 5}), device_name=H100))

    assert (found.fraction, found.missing) == (None, "no_peak_for_type")


def test_the_peak_is_of_the_type_that_did_most_and_says_how_much() -> None:
    mixed = make_count(by_dtype={"bf16": 9, "fp32": 1})

    found = model_utilization(make_run(mixed, device_name=H100))

    assert (found.dtype, found.dtype_fraction) == ("bf16", 0.9)
    assert "bf16 dense, 90.0 % of the work" in text_of(make_run(mixed, device_name=H100))


def test_without_a_count_the_reason_is_handed_on() -> None:
    run = make_run(None, count_missing="compiled")

    assert model_utilization(run).missing == "compiled"
    assert "run --count" in text_of(run)
    assert model_utilization(make_run(None)).missing == "not_counted"
    assert text_of(make_run(None)) == ""


def test_without_steady_steps_there_is_work_and_no_rate() -> None:
    run = make_run(make_count(), device_name=H100, steady=None)

    assert model_utilization(run).missing == "no_steady_steps"
    assert "per step" in text_of(run)
    assert "MFU" not in text_of(run)


def test_the_report_names_passes_classes_coverage_and_denominator() -> None:
    text = text_of(make_run(make_count(), device_name=H100))

    assert "15.0 TFLOP per step (forward 4.00 TFLOP, backward 8.00 TFLOP" in text
    assert "recomputed 3.00 TFLOP" in text
    assert "matmul 80.0 %, attention 20.0 %" in text
    assert "FLOP formulas cover 100.0 % of operator time" in text
    assert "MFU 10.3 % of 989 TFLOPS (H100 SXM 80GB, bf16 dense, datasheet)" in text
    assert "HFU 12.8 %" in text


def test_operators_without_a_formula_are_named_where_they_matter() -> None:
    count = make_count(covered_fraction=0.8, uncovered=("mine.kernel.default",))

    assert "FLOP formulas cover 80.0 % of operator time (not mine.kernel.default)" in text_of(
        make_run(count)
    )


# -- what is a lower bound, and several devices

PARTIAL = Completeness(
    is_complete=False,
    num_matrices=12,
    num_met=9,
    unmet=(
        UnmetMatrix(name="Net.a.weight", passes=("forward", "backward"), takers=("Mine",)),
        UnmetMatrix(name="Net.b.weight", passes=("forward",)),
        UnmetMatrix(name="Net.c.weight", passes=("forward",)),
    ),
    unseen=("Mine",),
)


def test_where_the_proof_fails_work_rate_and_utilization_are_lower_bounds() -> None:
    run = make_run(make_count(completeness=PARTIAL, covered_fraction=0.4), device_name=H100)

    document, text = describe_run(run, None), text_of(run)

    assert "at least 15.0 TFLOP per step" in text
    assert "at least 102 TFLOPS · MFU at least 10.3 %" in text
    assert "HFU at least 12.8 %" in text
    assert "40.0 % covered" in text
    assert (
        "not counted with 3 of 12 trained matrices: Net.a.weight (forward, backward; Mine), "
        "Net.b.weight (forward) and 1 more · no operator made the results of Mine" in text
    )
    data = to_json(document)
    assert data["work"]["is_complete"] is False
    assert (data["mfu"]["is_at_least"], data["hfu"]["is_at_least"]) == (True, True)


def test_where_the_proof_holds_the_report_says_so() -> None:
    proof = Completeness(is_complete=True, num_matrices=12, num_met=12)
    run = make_run(make_count(completeness=proof), device_name=H100)

    text = text_of(run)

    assert "at least" not in text
    assert "each trained matrix was met" in text
    assert model_utilization(run).is_at_least is False


def test_operators_without_a_formula_alone_make_a_lower_bound() -> None:
    proof = Completeness(is_complete=False, num_matrices=12, num_met=12)
    text = text_of(make_run(make_count(completeness=proof, covered_fraction=0.4)))

    assert "at least 15.0 TFLOP" in text
    assert "operators without a formula may have more work" in text


A100 = "NVIDIA A100-SXM4-80GB"


@pytest.mark.parametrize(
    ("devices", "peak", "num"),
    [
        (((H100, 8), (H100, 7)), 2 * 989e12, 2),
        (((H100, 8), (A100, 7)), (989 + 312) * 1e12, 2),
        (((H100, 1000), ("cpu", 1)), 989e12, 1),
        (((H100, 8), ("cpu", 7)), None, 2),
        (((A100, 8),), 312e12, 1),
    ],
)
def test_the_peak_is_that_of_all_devices_that_did_the_work(
    devices: tuple[tuple[str, int], ...], peak: float | None, num: int
) -> None:
    worked = tuple(WorkOnDevice(name=name, flops=flops) for name, flops in devices)

    found = model_utilization(make_run(make_count(devices=worked), device_name=H100))

    assert (found.peak_flops_per_s, found.num_devices) == (peak, num)
    assert found.flops_per_s == pytest.approx(12e12 / A_STEP_S)
    assert found.missing == (None if peak else "no_peak_for_type")


def test_the_report_says_how_many_devices_the_peak_is_of() -> None:
    worked = (WorkOnDevice(name=H100, flops=8), WorkOnDevice(name=H100, flops=8))
    text = text_of(make_run(make_count(devices=worked), device_name=H100))

    assert "of 1.98 PFLOPS (2 x H100 SXM 80GB, bf16 dense, datasheet)" in text


def test_a_peak_is_asked_for_where_it_can_be_given() -> None:
    run = make_run(make_count(), device_name="Unheard Of")
    assert "give it: steptime run --peak bf16=TFLOPS" in text_of(run)
    cell = replace(run, command=("%%steptime",))
    assert "give it: %%steptime --peak bf16=TFLOPS" in text_of(cell)


def test_no_reason_is_left_without_words() -> None:
    words = {"compiled", "mode_active", "subclass", "captured", "inexact", "failed"}
    words |= {"too_few_updates", "several_optimizers", "steps_differ", "without_gradients"}
    words |= {"no_backward_seen", "outside_modules", "unknown_device", "no_peak_for_type"}

    assert words <= set(REASONS)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 FLOP"),
        (999, "999 FLOP"),
        (999.6, "1.00 kFLOP"),
        (1_500_000, "1.50 MFLOP"),
        (989e12, "989 TFLOP"),
        (5e22, "50.0 ZFLOP"),
    ],
)
def test_work_has_three_digits_and_a_prefix(value: float, text: str) -> None:
    assert format_flops(value) == text


# --- from the lines of a run


def count_line(**fields: Any) -> dict[str, Any]:
    base = {"forward": 100, "backward": 200, "recomputed": 0, "macs": 150, "by_dtype": {"fp32": 1}}
    return {"k": "count", "n": 12, **base, **fields}


def measured(*lines: dict[str, Any], optimizers: int = 1) -> Measurement:
    rows = [make_update(n, {"forward": 5}, o=n % optimizers) for n in range(40)]
    return measure_lines(*rows, *lines, make_end(40))


def test_the_count_of_an_update_is_that_of_a_step() -> None:
    found = measured(count_line())

    assert found.count is not None
    assert (found.count.total, found.count_missing) == (300, None)


def test_where_optimizers_take_turns_an_update_is_no_step() -> None:
    found = measured(count_line(), optimizers=2)
    both = measured(count_line(updates=2), optimizers=2)

    assert (found.count, found.count_missing) == (None, "several_optimizers")
    assert both.count is not None


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"outside_flops": 3}, "outside_modules"),
        ({"backward": 0}, "no_backward_seen"),
        ({"missing": "inexact"}, "inexact"),
    ],
)
def test_what_is_no_whole_step_has_a_reason(fields: dict[str, Any], word: str) -> None:
    found = measured(count_line(**fields))

    assert (found.count, found.count_missing) == (None, word)


def test_a_model_of_lookups_alone_has_no_work_and_that_is_known() -> None:
    found = measured(count_line(forward=0, backward=0, macs=0, by_dtype={}))

    assert found.count is not None
    assert (found.count.total, model_utilization(found).flops_per_s) == (0, 0.0)


def test_a_count_is_worth_more_than_a_reason_for_none() -> None:
    found = measured(count_line(), {"k": "count", "n": 40, "missing": "too_few_updates"})

    assert found.count is not None


def test_a_damaged_line_is_counted_and_costs_nothing_else() -> None:
    found = measured(count_line(forward="many"))

    assert (found.count, found.count_missing) == (None, None)
    assert found.num_steps == 40


@pytest.mark.parametrize(
    ("other", "flops"),
    [({"forward": 500}, (300, 700)), ({"missing": "inexact"}, ()), ({"updates": 2}, ())],
)
def test_the_work_of_every_rank_is_told_where_all_were_counted(
    other: dict[str, Any], flops: tuple[int, ...]
) -> None:
    rows = [make_update(n, {"forward": 5}) for n in range(40)]
    files = {
        f"rank-{rank}.jsonl": [make_head(rank=rank, pid=101 + rank), *rows, line, make_end(40)]
        for rank, line in enumerate((count_line(), count_line(**other)))
    }

    found = measure(read(files)).count

    assert found is not None
    assert found.rank_flops == flops


def test_old_runs_say_nothing_of_their_work() -> None:
    assert (measured().count, measured().count_missing) == (None, None)


def test_what_an_extra_child_counted_stands_in_for_the_run() -> None:
    rows = [make_update(n, {"forward": 5}) for n in range(40)]
    own = {"k": "count", "n": 12, "missing": "compiled"}
    head = {"k": "head", "schema": 1}
    files = {
        "rank-0.jsonl": [make_head(), *rows, own, make_end(40)],
        "count.jsonl": [head, count_line()],
    }

    found = measure(read(files))

    assert found.count is not None
    assert found.count.is_executed is False


def test_why_an_extra_child_counted_nothing_is_said_instead_of_the_runs_reason() -> None:
    rows = [make_update(n, {"forward": 5}) for n in range(40)]
    own = {"k": "count", "n": 12, "missing": "compiled"}
    files = {
        "rank-0.jsonl": [make_head(), *rows, own, make_end(40)],
        "count.jsonl": [{"k": "head", "schema": 1}, {"k": "count", "missing": "child_ended"}],
    }

    assert measure(read(files)).count_missing == "child_ended"


def test_the_user_s_own_peak_goes_before_the_datasheet_s_and_is_named_as_such() -> None:
    run = make_run(make_count(), device_name=H100, given_peaks={"bf16": 500e12})

    found = model_utilization(run)

    assert found.fraction == pytest.approx(12e12 / A_STEP_S / 500e12)
    assert (found.is_given, found.source) == (True, "given by the user")
    assert "of 500 TFLOPS (bf16 dense, your own figure)" in text_of(run)


def test_a_peak_of_another_type_leaves_the_datasheet_s_alone() -> None:
    run = make_run(make_count(), device_name=H100, given_peaks={"fp32": 60e12})

    found = model_utilization(run)

    assert (found.is_given, found.peak_flops_per_s) == (False, 989e12)
    assert "datasheet" in text_of(run)


def test_an_unknown_device_has_the_mfu_that_its_user_gave_a_peak_for() -> None:
    unknown = make_run(make_count(), device_name="Some GPU")
    known = make_run(make_count(), device_name="Some GPU", given_peaks={"bf16": 200e12})

    assert "give it: steptime run --peak bf16=TFLOPS" in text_of(unknown)
    assert model_utilization(known).fraction == pytest.approx(12e12 / A_STEP_S / 200e12)
    other = make_run(make_count(), device_name="Some GPU", given_peaks={"fp32": 200e12})
    assert model_utilization(other).missing == "no_peak_for_type"


def test_a_peak_of_a_damaged_file_is_none() -> None:
    run = make_run(make_count(), device_name=H100, given_peaks={"bf16": -1.0})

    assert model_utilization(run).peak_flops_per_s == 989e12


def test_a_peak_that_the_run_beats_is_called_too_low() -> None:
    run = make_run(make_count(), device_name="Some GPU", given_peaks={"bf16": 50e12})

    assert "this peak is too low" in text_of(run)


def test_a_slice_of_a_device_has_its_part_of_the_peak() -> None:
    rank = make_rank(
        GPT_PHASES,
        device="cuda",
        device_name="NVIDIA A100-SXM4-40GB MIG 1g.5gb",
        num_multiprocessors=14,
    )
    run = make_measurement(GPT_PHASES, ranks=(rank,), count=make_count())

    assert model_utilization(run).peak_flops_per_s == pytest.approx(312e12 * 14 / 108)
