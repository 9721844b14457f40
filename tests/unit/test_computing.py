"""Which part of the arithmetic takes the time, and the remedy that fits it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from steptime.app.run.describe_run import describe_run
from steptime.diagnose.ailments.compute.arithmetic import without_same_phases
from steptime.diagnose.ailments.compute.computing import find_compute
from steptime.diagnose.diagnosis import diagnose
from steptime.diagnose.values.finding import BottleneckKind, Finding, HeldBy
from steptime.measure.values.machine_load import HostLoad
from steptime.measure.values.measurement import (
    Measurement,
)
from steptime.measure.values.model.operator_time import OperatorPlace, TimedModule, TimedOperator
from steptime.measure.values.model.work import ClassCount, Count
from steptime.measure.values.observations import Operators
from steptime.report.blocks.work.work_blocks import work_blocks
from steptime.report.words.run.advice import choose_headline, next_act
from steptime.report.words.run.run_words import describe_finding
from told_blocks import told
from unit.builders import make_measurement, make_phases

MS = 1e-3


def numbers(finding: Finding) -> dict[str, float]:
    return {evidence.name: evidence.value for evidence in finding.evidence}


def operator(name: str, kind: str, time_ms: float, module: str = "Net.drop") -> TimedOperator:
    return TimedOperator(
        name=f"aten.{name}", kind=kind, module=module, module_kind="Dropout", time_s=time_ms * MS
    )


def count_of(*operators: TimedOperator, **fields: Any) -> Count:
    sums: dict[str, float] = {}
    for one in operators:
        sums[one.kind] = sums.get(one.kind, 0.0) + (one.time_s or 0.0)
    classes = tuple(ClassCount(name=name, time_s=time_s) for name, time_s in sums.items())
    modules = (TimedModule(name="Net.drop", kind="Dropout", time_s=sum(sums.values())),)
    values = {"forward": 1, "backward": 2, "recomputed": 0, "macs": 1, "by_dtype": {"fp32": 3}}
    values |= {"classes": classes, "operators": operators, "module_times": modules}
    return Count(**{**values, "clock": "wall", **fields})


def timed(*operators: TimedOperator, **fields: Any) -> Measurement:
    """A step of a second: forward 0.27 s, backward 0.54 s, optimizer 0.09 s, other 0.1 s."""
    values = {"compute_s": 0.9, "other_s": 0.1, "count": count_of(*operators)}
    return make_measurement(**{**values, **fields})


def compute_of(measurement: Measurement) -> Finding:
    found = find_compute(measurement)
    assert found is not None
    return found


def test_an_exchange_between_ranks_or_a_view_is_no_part_of_the_arithmetic() -> None:
    exchange = replace(operator("", "communication", 400), name="c10d.allreduce_")
    found = compute_of(timed(exchange, operator("relu", "elementwise", 310)))

    assert found.cause == "elementwise"
    assert found.names is not None
    assert found.names["operator"] == "relu"
    assert numbers(found)["elementwise"] == pytest.approx(0.31)
    view = operator("t", "view", 400)
    assert compute_of(timed(view, operator("mm", "matmul", 310))).cause is None
    assert compute_of(timed(exchange, operator("mm", "matmul", 310))).cause is None


def test_a_dropout_that_takes_most_of_a_step_is_named_with_its_module() -> None:
    run = timed(operator("bernoulli_", "elementwise", 500), operator("mm", "matmul", 310))
    found = compute_of(run)

    assert found.cause == "random_numbers"
    assert numbers(found) == pytest.approx(
        {
            "compute": 0.9,
            "products": 0.31,
            "elementwise": 0.0,
            "random_numbers": 0.5,
            "lookups": 0.0,
            "optimizer": 0.09,
        },
        abs=1e-9,
    )
    text = describe_finding(found, 1.0)
    assert "take 50.0 % of a step, led by bernoulli_ in Net.drop (Dropout)" in text
    assert "By time, matmul and convolution take 31.0 % of a step" in text
    assert next_act(run, diagnose(run)).sentence.startswith("Draw fewer of them")


def test_the_line_at_which_the_named_module_calls_the_longest_operator_is_the_place() -> None:
    rows = (operator("bernoulli_", "elementwise", 500), operator("mm", "matmul", 310))
    lines = (
        ("aten.mm", 20, "Net.drop"),
        ("aten.bernoulli_", 9, "Net.input"),
        ("aten.bernoulli_", 14, "Net.drop"),
        ("aten.bernoulli_", 30, "Net.drop"),
    )
    places = tuple(
        OperatorPlace(name=name, file="gat.py", line=line, num=2, time_s=0.2, module=module)
        for name, line, module in lines
    )
    found = compute_of(timed(*rows, operators=Operators(num=9, places=places)))

    assert found.where == "gat.py:14"
    assert "At gat.py:14, 2 per step." in describe_finding(found, 1.0)
    assert compute_of(timed(*rows)).where is None


@pytest.mark.parametrize(
    ("name", "kind", "cause"),
    [
        ("mm", "matmul", None),
        ("mul", "elementwise", "elementwise"),
        ("native_layer_norm", "normalization", "elementwise"),
        ("embedding_dense_backward", "embedding", "lookups"),
        ("native_dropout_backward", "elementwise", "random_numbers"),
    ],
)
def test_the_part_with_most_time_is_the_cause(name: str, kind: str, cause: str | None) -> None:
    assert compute_of(timed(operator(name, kind, 700), operator("t", "other", 5))).cause == cause


def test_an_optimizer_with_most_of_the_step_is_the_cause_and_its_lever_comes_first() -> None:
    phases = make_measurement(compute_s=1.0).phases
    heavy = tuple(
        one
        if one.name not in ("forward", "backward", "optimizer")
        else type(one)(
            name=one.name, median_s=0.3, fraction={"optimizer": 0.46}.get(one.name, 0.25)
        )
        for one in phases
    )
    run = make_measurement(compute_s=1.0, phases=heavy)
    found = compute_of(run)

    assert (found.cause, numbers(found)["optimizer"]) == ("optimizer", 0.46)
    assert "update takes 46.0 % of a step; all arithmetic takes 96.0 %." in describe_finding(
        found, 1.0
    )
    assert "--levers fused_optimizer" in next_act(run, diagnose(run)).command


@pytest.mark.parametrize("part", ["optimizer", "gradient_processing"])
@pytest.mark.parametrize("fraction", [0.25, 0.34, 0.44])
def test_a_third_outside_of_the_model_is_named_though_products_take_more(
    part: str, fraction: float
) -> None:
    left = 1 - fraction
    phases = make_phases({"forward": 0.4 * left, "backward": 0.6 * left, part: fraction})
    products = count_of(operator("mm", "matmul", 1000 * left))
    found = compute_of(make_measurement(compute_s=1.0, phases=phases, count=products))

    assert (found.cause == part) is (fraction > 1 / 3)
    assert numbers(found)[part] == pytest.approx(fraction)


def test_clipping_that_takes_most_of_a_step_is_not_advised_a_shorter_type() -> None:
    phases = make_phases({"forward": 0.2, "backward": 0.3, "gradient_processing": 0.5})
    run = make_measurement(compute_s=1.0, phases=phases)

    assert next_act(run, diagnose(run)).sentence.startswith("Handle all gradients in one call")


@pytest.mark.parametrize("other", [0.02 * n for n in range(1, 17)])
def test_no_share_of_other_code_leaves_the_arithmetic_without_advice(other: float) -> None:
    run = make_measurement(compute_s=1 - other, other_s=other)
    act = next_act(run, diagnose(run))

    assert act.command.startswith("steptime tune --levers")
    assert "cheaper" in act.sentence


def test_beside_others_a_large_part_counts_without_all_the_arithmetic() -> None:
    times_s = {"forward": 0.05, "backward": 0.1, "optimizer": 0.55, "other": 0.3}
    halves_s = {name: time_s / 2 for name, time_s in times_s.items()}
    phases = make_phases(times_s, cpu_s=halves_s)
    busy = HostLoad(num_cores=4, job_cores=1, others_cores=3, num_samples=9, delayed_fraction=0.4)
    run = make_measurement(phases=phases, host=busy)
    found = choose_headline(diagnose(run))

    assert found is not None
    assert (found.cause, found.held_by) == ("optimizer", HeldBy.CPU_TIME)


def test_a_large_part_is_named_where_arithmetic_does_not_fill_the_step() -> None:
    run = timed(operator("mul", "elementwise", 500), compute_s=0.7, other_s=0.3)

    assert diagnose(run).kind is BottleneckKind.COMPUTE_BOUND
    assert compute_of(run).cause == "elementwise"


def test_operators_have_no_more_of_a_step_than_they_were_timed_at() -> None:
    half = timed(operator("mul", "elementwise", 150), operator("mm", "matmul", 300))
    asleep = timed(operator("mul", "elementwise", 1), operator("mm", "matmul", 1))

    assert numbers(compute_of(half))["elementwise"] == pytest.approx(0.15)
    assert set(numbers(compute_of(asleep))) == {"compute", "optimizer"}


def test_cpu_time_of_operators_is_compared_with_that_of_their_phases() -> None:
    cpu_s = {"forward": 0.1, "backward": 0.2, "optimizer": 0.01}
    busy = count_of(operator("mul", "elementwise", 240), clock="cpu")
    run = make_measurement(compute_s=0.9, other_s=0.1, cpu_s=cpu_s, count=busy)

    assert numbers(compute_of(run))["elementwise"] == pytest.approx(0.81 * 0.24 / 0.3)


def test_without_times_of_operators_nothing_is_said_of_them() -> None:
    found = compute_of(make_measurement(compute_s=1.0))

    assert set(numbers(found)) == {"compute", "optimizer"}
    assert "By time" not in describe_finding(found, 1.0)


def test_a_finding_on_the_host_leaves_what_it_does_not_explain() -> None:
    drawn = compute_of(timed(operator("bernoulli_", "elementwise", 800)))
    products = compute_of(timed(operator("mm", "matmul", 800)))

    assert without_same_phases([drawn, products]) == [drawn]


def test_the_work_of_a_step_has_its_time_beside_its_flop() -> None:
    run = timed(operator("bernoulli_", "elementwise", 600), operator("mm", "matmul", 200, ""))
    document = describe_run(replace(run, steady=None), None)
    lines = told(work_blocks(document)).splitlines()

    assert lines[1] == (
        "time       800 ms in operators of the forward and the backward: elementwise 75.0 %, "
        "matmul 25.0 % · of these bernoulli_ 75.0 % (Dropout), mm 25.0 % (Dropout) · in modules "
        "Dropout 100.0 %"
    )


@pytest.mark.parametrize(("cpu_s", "computes"), [(0.0003, False), (0.005, True), (None, True)])
def test_a_phase_that_sleeps_is_no_arithmetic(cpu_s: float | None, *, computes: bool) -> None:
    times_s = {"forward": 0.0002, "backward": 0.0005, "gradient_processing": 0.0217}
    on_cores_s = None if cpu_s is None else {**times_s, "gradient_processing": cpu_s}
    run = make_measurement(phases=make_phases(times_s, cpu_s=on_cores_s))

    assert (diagnose(run).kind is BottleneckKind.COMPUTE_BOUND) is computes
