"""What the rules on the host, on memory and on the script say, and when they abstain."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from steptime.core.process_end import ProcessEnd, RunState
from steptime.diagnose.ailments.host.host import (
    find_gc,
    find_launches,
    find_page_faults,
    find_recompile,
    find_sync,
    find_tiny_operators,
)
from steptime.diagnose.ailments.input.experience import find_process_wait, find_rollout
from steptime.diagnose.ailments.input.waiting import (
    find_checkpoint,
    find_copies,
    find_evaluation,
    find_input_wait,
    find_preprocessing,
)
from steptime.diagnose.ailments.memory.memory_limits import (
    find_device_leak,
    find_leak,
    find_out_of_memory,
    find_swapping,
)
from steptime.diagnose.ailments.script.script_faults import (
    SWITCHES,
    find_failure,
    find_graph_breaks,
    find_suspicion,
    find_switch,
)
from steptime.diagnose.diagnosis import diagnose
from steptime.diagnose.values.finding import BottleneckKind, Finding, Severity
from steptime.measure.values.machine_load import HostLoad, WorkerSummary
from steptime.measure.values.measurement import (
    Measurement,
    RankSummary,
    Span,
)
from steptime.measure.values.model.anatomy import Anatomy, MemoryPart
from steptime.measure.values.observations import (
    AwaitedProcess,
    Compilation,
    CompileEvent,
    GcPauses,
    MemoryUse,
    Operators,
    ScriptError,
    Site,
    Suspicion,
    Switch,
)
from steptime.measure.values.spent_line import SpentTime
from steptime.measure.values.wall_time import WallPart, WallTime
from steptime.report.words.run.advice import trial_levers
from unit.builders import make_measurement, make_phases, make_quantity, make_rank, make_steady

Kind = BottleneckKind
GIB = 1 << 30
MIB = 1 << 20


def numbers(finding: Finding | None) -> dict[str, float]:
    assert finding is not None
    return {evidence.name: evidence.value for evidence in finding.evidence}


def with_rank(rank: RankSummary | None = None, **fields: Any) -> RankSummary:
    values = {name: getattr(rank or make_rank(forward=1.0), name) for name in rank_fields()}
    return RankSummary(**{**values, **fields})


def rank_fields() -> list[str]:
    return list(RankSummary.__dataclass_fields__)


def use(last_bytes: int = GIB, **fields: Any) -> MemoryUse:
    values = {
        "first_bytes": GIB,
        "last_bytes": last_bytes,
        "peak_bytes": last_bytes,
        "num_samples": 50,
    }
    return MemoryUse(**{**values, **fields})


def site(what: str, line: int = 31, end_line: int | None = None, **fields: Any) -> Site:
    values = {"calls_per_step": 1.0, "s_per_step": 0.3, "text": "for x, y in loader:"}
    end = line if end_line is None else end_line
    return Site(what=what, file="train.py", line=line, end_line=end, **{**values, **fields})


def on_device(device_s: float, **times_s: float) -> Measurement:
    """One second a step, `device_s` of it the device computes."""
    rest_s = 1.0 - math.fsum(times_s.values())
    phases = make_phases({"forward": rest_s, **times_s}, device_s={"forward": device_s})
    rank = make_rank(device="cuda", forward=1.0)
    return make_measurement(
        phases=phases, ranks=(rank,), steady=make_steady(make_quantity(1.0)), host=None
    )


# -- data


def test_work_on_a_batch_between_loader_and_model_is_preprocessing() -> None:
    gap = site("other", 22, 27)
    found = find_preprocessing(make_measurement(prepare_fraction=0.4, sites=(gap,)))

    assert found is not None
    assert (found.kind, found.cause) == (Kind.INPUT_BOUND, "preprocessing")
    assert found.where == "train.py:22-27"
    assert found.headroom_speedup == pytest.approx(1 / 0.6)


@pytest.mark.parametrize("fraction", [None, 0.09])
def test_little_or_unseen_preparing_is_no_finding(fraction: float | None) -> None:
    assert find_preprocessing(make_measurement(prepare_fraction=fraction)) is None


def test_waiting_for_data_names_the_line_of_the_loop() -> None:
    found = find_input_wait(
        make_measurement(input_wait_s=0.4, fetch_s=0.4, sites=(site("input_wait"),))
    )

    assert found is not None
    assert (found.where, found.where_text) == ("train.py:31", "for x, y in loader:")
    assert numbers(found)["site_time"] == 0.3


def test_loading_in_process_names_the_loader_that_takes_the_time() -> None:
    sites = (site("input_wait", line=31), site("fetch", line=44))
    found = find_input_wait(make_measurement(input_wait_s=0.4, fetch_s=0.4, sites=sites))

    assert found is not None
    assert found.where == "train.py:44"


def test_copies_that_hold_the_step_back_are_input_bound() -> None:
    found = find_copies(on_device(0.5, h2d=0.4))

    assert found is not None
    assert (found.kind, found.cause) == (Kind.INPUT_BOUND, "copies")


@pytest.mark.parametrize(
    ("rule", "name"), [(find_evaluation, "evaluation"), (find_checkpoint, "checkpoint")]
)
def test_a_span_that_takes_a_third_of_the_run_is_critical_and_no_bottleneck(
    rule: Any, name: str
) -> None:
    span = Span(name=name, total_s=101 * 0.5, num_steps_touched=10)
    found = rule(make_measurement(spans=(span,), sites=(site(name),)))

    assert (found.kind, found.cause, found.severity) == (None, name, Severity.CRITICAL)
    assert found.headroom_speedup == pytest.approx(2)
    assert found.where == "train.py:31"


def test_what_a_script_evaluates_after_its_training_is_no_part_of_the_loop() -> None:
    span = Span(name="evaluation", total_s=110, num_steps_touched=9, outside_s=100)
    part = WallPart(name="evaluation", total_s=110, num=10)
    whole = make_measurement(spans=(span,), wall_time=WallTime(total_s=500, parts=(part,)))

    found = find_evaluation(whole)

    assert found is not None
    assert numbers(found)["evaluation_total"] == pytest.approx(10)
    assert find_evaluation(replace(whole, spans=(replace(span, outside_s=109.9),))) is None

    sites = [
        replace(site("evaluation"), s_per_step=10.9),
        replace(site("evaluation"), s_per_step=90),
    ]
    inside, both = (find_evaluation(replace(whole, sites=(one,))) for one in sites)
    assert numbers(inside)["site_time"] == pytest.approx(10.9)
    assert both is not None
    assert both.where == "train.py:31"
    assert not {"calls", "site_time"} & numbers(both).keys()


def test_one_evaluation_is_no_pattern() -> None:
    span = Span(name="evaluation", total_s=1000, num_steps_touched=1)
    assert find_evaluation(make_measurement(spans=(span,))) is None


# -- the host


def test_many_tiny_operators_are_host_bound() -> None:
    # 10 ms a step, 9 of them forward and backward; 300 tiny ones may take up to 12.
    operators = Operators(num=310, num_tiny=300, tiny_s=0.002, large_s=0.001)
    found = find_tiny_operators(make_measurement(compute_s=0.010, operators=operators))

    assert found is not None
    assert (found.kind, found.cause) == (Kind.HOST_BOUND, "tiny_operators")
    assert numbers(found) == {
        "tiny_operators": pytest.approx(0.8),
        "num_operators": 310,
        "num_tiny": 300,
    }


@pytest.mark.parametrize(("library", "fraction"), [("keras", 0.7), ("keras", 0.4), ("torch", 0.9)])
def test_the_library_that_calls_the_tiny_operators_is_named(library: str, fraction: float) -> None:
    operators = Operators(num=310, num_tiny=300, tiny_s=0.002, large_s=0.001)
    spent = SpentTime(
        num_samples=80,
        num_updates=80,
        step_s=0.01,
        without_line=0.0,
        libraries={library: fraction},
    )

    found = find_tiny_operators(
        replace(make_measurement(compute_s=0.010, operators=operators), spent=spent)
    )

    assert found is not None
    is_named = library == "keras" and fraction > 0.5
    assert found.names == ({"library": "keras"} if is_named else None)


def test_an_operator_that_was_interrupted_does_not_hide_the_tiny_ones() -> None:
    # Together they seem longer than the 9 ms in which all of them run in the other steps.
    operators = Operators(num=310, num_tiny=300, tiny_s=0.004, large_s=0.020)
    found = find_tiny_operators(make_measurement(compute_s=0.010, operators=operators))

    assert found is not None
    assert numbers(found)["tiny_operators"] == pytest.approx(0.4)


def test_time_in_which_the_process_slept_is_not_blamed_on_operators() -> None:
    cpu_s = {"forward": 0.0003, "backward": 0.0006, "optimizer": 0.0001}
    operators = Operators(num=100, num_tiny=100, tiny_s=0.0003, large_s=0)
    measurement = make_measurement(compute_s=0.010, cpu_s=cpu_s, operators=operators)

    assert find_tiny_operators(measurement) is None


def test_large_operators_are_not_tiny_ones() -> None:
    operators = Operators(num=310, num_tiny=300, tiny_s=0.002, large_s=0.5)
    assert find_tiny_operators(make_measurement(compute_s=0.5, operators=operators)) is None


def test_other_python_in_the_forward_is_not_blamed_on_operators() -> None:
    operators = Operators(num=10, num_tiny=10, tiny_s=0.0001, large_s=0)
    assert find_tiny_operators(make_measurement(compute_s=0.010, operators=operators)) is None


def test_without_a_count_of_operators_the_rule_abstains() -> None:
    assert find_tiny_operators(make_measurement()) is None
    assert find_tiny_operators(make_measurement(operators=Operators(missing="compiled"))) is None


def test_a_device_that_nothing_else_keeps_idle_waits_for_launches() -> None:
    found = find_launches(on_device(0.3, input_wait=0.2))

    assert found is not None
    assert (found.kind, found.cause) == (Kind.HOST_BOUND, "launches")
    assert numbers(found) == {"launches": pytest.approx(0.5), "idle": pytest.approx(0.7)}


def test_an_idle_device_without_data_does_not_wait_for_launches() -> None:
    assert find_launches(on_device(0.3, input_wait=0.7)) is None
    assert find_launches(make_measurement()) is None


def test_a_wait_for_a_busy_device_costs_nothing() -> None:
    assert find_sync(on_device(0.95, sync=0.6)) is None


def test_a_wait_for_an_idle_device_is_a_sync() -> None:
    found = find_sync(on_device(0.5, sync=0.4))

    assert found is not None
    assert (found.kind, found.cause) == (Kind.HOST_BOUND, "sync")
    assert found.severity is Severity.CRITICAL


def test_without_device_times_a_sync_is_worth_knowing_at_most() -> None:
    phases = make_phases({"forward": 0.5, "sync": 0.5})
    found = find_sync(make_measurement(phases=phases, ranks=(make_rank(device="cuda", sync=1.0),)))

    assert found is not None
    assert found.severity is Severity.INFO
    assert "device_time" in found.missing


def test_what_is_made_to_train_on_makes_the_step_wait_for_its_input() -> None:
    phases = make_phases({"forward": 0.4, "rollout": 0.6})
    found = find_rollout(make_measurement(phases=phases))

    assert found is not None
    assert (found.kind, found.cause) == (Kind.INPUT_BOUND, "rollout")
    assert found.severity is Severity.CRITICAL
    assert found.headroom_speedup == pytest.approx(2.5)
    assert diagnose(make_measurement(phases=phases)).kind is Kind.INPUT_BOUND


def test_a_short_rollout_is_no_finding() -> None:
    phases = make_phases({"forward": 0.95, "rollout": 0.05})

    assert find_rollout(make_measurement(phases=phases)) is None
    unseen = make_phases({"forward": 1.0}, missing={"rollout": "no_rollout_seen"})
    assert find_rollout(make_measurement(phases=unseen)) is None


@pytest.mark.parametrize(
    ("awaited", "words"),
    [
        ((), "another process"),
        (
            (AwaitedProcess(pid=7, command="python a.py", name="actor"),),
            "process 7 actor (python a.py)",
        ),
        ((AwaitedProcess(address="10.0.0.1:80"),), "10.0.0.1:80"),
        ((AwaitedProcess(name="Ray"),), "Ray"),
        ((AwaitedProcess(pid=7), AwaitedProcess(pid=8)), "process 7 or 1 more"),
    ],
)
def test_a_wait_for_a_process_says_for_which(
    awaited: tuple[AwaitedProcess, ...], words: str
) -> None:
    phases = make_phases({"forward": 0.4, "process_wait": 0.6})
    ranks = (with_rank(awaited=awaited),)
    found = find_process_wait(make_measurement(phases=phases, ranks=ranks))

    assert found is not None
    assert (found.kind, found.cause) == (Kind.INPUT_BOUND, "process_wait")
    assert found.names == {"process": words}


def gc_rank(rank: int, fraction: float, world_size: int = 1) -> RankSummary:
    pauses = GcPauses(pauses_per_step=2.0, s_per_step=fraction, fraction=fraction)
    return with_rank(make_rank(rank, world_size=world_size, forward=1.0), gc=pauses)


def test_collections_of_garbage_are_host_bound() -> None:
    found = find_gc(make_measurement(ranks=(gc_rank(0, 0.25),)))

    assert found is not None
    assert (found.kind, found.cause, found.severity) == (Kind.HOST_BOUND, "gc", Severity.WARNING)


def test_ranks_that_collect_in_turn_add_up() -> None:
    ranks = (gc_rank(0, 0.12, 2), gc_rank(1, 0.13, 2))
    found = find_gc(make_measurement(ranks=ranks))

    assert numbers(found)["gc"] == pytest.approx(0.25)
    assert numbers(found)["gc_rank"] == 1


def compiled(num_again: int, *, total_s: float = 0.0, num_graphs: int = 10) -> Compilation:
    event = CompileEvent(reason="size mismatch", count=num_again, where="model.py:9")
    return Compilation(
        num_graphs=num_graphs,
        num_steps_touched=num_again + 1,
        total_s=total_s,
        recompiles=(event,) if num_again else (),
    )


@pytest.mark.parametrize(
    ("num_again", "total_s", "severity"),
    [
        (1, 1000.0, None),
        (2, 0.1, Severity.INFO),
        (8, 0.1, Severity.WARNING),
        (5, 101 * 0.5 * 2, Severity.CRITICAL),
    ],
)
def test_compiling_again_is_judged_by_its_share_and_by_torchs_limit(
    num_again: int, total_s: float, severity: Severity | None
) -> None:
    found = find_recompile(make_measurement(compilation=compiled(num_again, total_s=total_s)))

    assert (found.severity if found else None) == severity
    assert found is None or found.where == "model.py:9"


def test_page_faults_are_judged_by_the_time_in_the_kernel_that_they_explain() -> None:
    # 0.5 s a step, 0.2 of it in the kernel; 100,000 faults explain 0.18.
    memory = use(minor_faults_per_step=100_000, system_cpu_s_per_step=0.2)
    rank = with_rank(make_rank(forward=0.5), host_memory=memory)
    found = find_page_faults(make_measurement(ranks=(rank,)))

    assert found is not None
    assert (found.kind, found.cause) == (Kind.HOST_BOUND, "page_faults")
    assert numbers(found)["page_faults"] == pytest.approx(0.36)


def test_page_faults_of_a_process_that_mostly_waits_hold_nothing_back() -> None:
    # 1,000 faults are 1.8 ms: a third of the CPU time, a fiftieth of the step.
    memory = use(minor_faults_per_step=1_000, system_cpu_s_per_step=0.002)
    rank = with_rank(make_rank(forward=0.1), host_memory=memory, step_cpu_s=make_quantity(0.005))
    assert find_page_faults(make_measurement(ranks=(rank,))) is None


def test_faults_that_would_take_longer_than_the_step_are_not_its_own() -> None:
    memory = use(minor_faults_per_step=100_000, system_cpu_s_per_step=0.2)  # of an evaluation
    rank = with_rank(make_rank(forward=0.1), host_memory=memory)
    assert find_page_faults(make_measurement(ranks=(rank,))) is None


@pytest.mark.parametrize(
    ("size", "cause"), [(300 * MIB, "gradient_faults"), (30 * MIB, "page_faults")]
)
def test_faults_of_gradients_are_not_the_allocators(size: int, cause: str) -> None:
    memory = use(minor_faults_per_step=100_000, system_cpu_s_per_step=0.2)
    rank = with_rank(make_rank(forward=0.5), host_memory=memory)
    part = MemoryPart(name="gradients", bytes=size)
    anatomy = Anatomy(
        rank=0, moment="update", num_updates=2, num_parameters=1, num_trainable=1, parts=(part,)
    )
    found = find_page_faults(make_measurement(ranks=(rank,), memory=anatomy))

    assert found is not None
    assert (found.cause, trial_levers(found, make_measurement()).levers) == (
        cause,
        () if cause == "gradient_faults" else ("allocator", "micro_batches"),
    )


def test_kernel_time_without_faults_is_no_finding() -> None:
    memory = use(minor_faults_per_step=10, system_cpu_s_per_step=0.4)
    rank = with_rank(make_rank(forward=0.5), host_memory=memory)
    assert find_page_faults(make_measurement(ranks=(rank,))) is None


# -- memory

FAILED = ProcessEnd(state=RunState.FAILED, exit_code=1)
KILLED = ProcessEnd(state=RunState.KILLED, signal=9)


def memory_error(**fields: Any) -> ScriptError:
    values = {"type": "RuntimeError", "text": "not enough memory", "num_updates": 12}
    return ScriptError(**{**values, "is_memory": True, **fields})


def test_an_error_that_says_so_is_out_of_memory_whatever_else_was_found() -> None:
    error = memory_error(where="train.py:31", phase="backward", requested_bytes=4 * GIB)
    diagnosis = diagnose(
        make_measurement(input_wait_s=0.9, compute_s=0.1, end=FAILED, errors=(error,))
    )

    first = diagnosis.findings[0]
    assert diagnosis.kind is Kind.MEMORY_CAPACITY_BOUND
    assert (first.cause, first.severity, first.where) == (
        "out_of_memory",
        Severity.CRITICAL,
        "train.py:31",
    )
    assert numbers(first) == {"updates_done": 12, "requested": 4 * GIB}


def test_a_run_without_steps_that_died_of_memory_is_not_inconclusive() -> None:
    diagnosis = diagnose(
        make_measurement(end=FAILED, errors=(memory_error(),), num_steps=0, steady=None)
    )

    assert diagnosis.kind is Kind.MEMORY_CAPACITY_BOUND
    assert {finding.cause for finding in diagnosis.findings} == {"out_of_memory", "no_steps"}


def test_another_error_is_no_want_of_memory() -> None:
    error = memory_error(is_memory=False)
    assert find_out_of_memory(make_measurement(end=FAILED, errors=(error,))) is None


def test_a_kill_by_the_kernel_is_out_of_memory() -> None:
    host = HostLoad(num_cores=4, job_cores=1, others_cores=0, num_samples=9, num_oom_kills=1)
    assert find_out_of_memory(make_measurement(end=FAILED, host=host)) is not None
    assert find_out_of_memory(make_measurement(host=host)) is None  # it finished


@pytest.mark.parametrize(("last_bytes", "is_found"), [(15 * GIB, True), (8 * GIB, False)])
def test_a_kill_near_the_limit_is_likely_want_of_memory(last_bytes: int, *, is_found: bool) -> None:
    rank = with_rank(host_memory=use(last_bytes, limit_bytes=16 * GIB))
    found = find_out_of_memory(make_measurement(end=KILLED, ranks=(rank,)))

    assert (found is not None) == is_found


def test_reading_back_from_swap_is_swapping() -> None:
    host = HostLoad(
        num_cores=4, job_cores=1, others_cores=0, num_samples=9, swap_in_bytes_per_s=50 * MIB
    )
    rank = with_rank(host_memory=use(major_faults_per_step=1000))
    found = find_swapping(make_measurement(host=host, ranks=(rank,)))

    assert found is not None
    assert (found.kind, found.severity) == (Kind.MEMORY_CAPACITY_BOUND, Severity.WARNING)
    assert find_swapping(make_measurement(ranks=(rank,))) is None


def growing(slope: float, half_width: float = 0.0, **fields: Any) -> RankSummary:
    trend = make_quantity(slope, half_width=half_width)
    memory = use(slope_bytes_per_step=trend, **fields)
    return with_rank(host_memory=memory)


def test_memory_that_grows_with_the_steps_is_a_leak() -> None:
    found = find_leak(make_measurement(ranks=(growing(MIB, MIB / 10),)))

    assert found is not None
    assert (found.kind, found.cause, found.severity) == (None, "leak", Severity.WARNING)
    values = numbers(found)
    assert (values["slope_low"], values["growth"]) == (pytest.approx(0.9 * MIB), 100 * MIB)


@pytest.mark.parametrize("code", ["kept_graph", "kept_tensors"])
def test_a_leak_names_the_line_that_keeps_results_of_each_step(code: str) -> None:
    line = Suspicion(code=code, where="train.py:12", text="outputs.append(output)")
    found = find_leak(make_measurement(ranks=(growing(MIB, MIB / 10),), suspicions=(line,)))

    assert found is not None
    assert (found.where, found.where_text) == ("train.py:12", "outputs.append(output)")


@pytest.mark.parametrize(
    "rank",
    [
        growing(MIB, 2 * MIB),
        growing(MIB, 0.6 * MIB),
        growing(MIB / 10),
        growing(-MIB),
        with_rank(host_memory=use()),
    ],
    ids=["interval spans zero", "hardly known", "too little", "shrinks", "no trend"],
)
def test_what_may_be_a_wobble_is_no_leak(rank: RankSummary) -> None:
    assert find_leak(make_measurement(ranks=(rank,))) is None


def test_a_few_steps_do_not_show_a_leak() -> None:
    steady = make_steady(make_quantity(0.5), num_steps=29)
    assert find_leak(make_measurement(ranks=(growing(MIB),), steady=steady)) is None


def test_a_leak_that_fills_memory_soon_is_critical() -> None:
    found = find_leak(make_measurement(ranks=(growing(MIB, limit_bytes=GIB + 500 * MIB),)))

    assert found is not None
    assert found.severity is Severity.CRITICAL
    assert numbers(found)["steps_left"] == 500


def test_a_device_leak_is_told_apart() -> None:
    memory = use(slope_bytes_per_step=make_quantity(MIB))
    found = find_device_leak(make_measurement(ranks=(with_rank(device_memory=memory),)))

    assert found is not None
    assert found.cause == "device_leak"


# -- the script


@pytest.mark.parametrize("name", SWITCHES)
def test_each_switch_is_a_finding_of_its_own(name: str) -> None:
    switch = Switch(name=name, where="train.py:3")
    measurement = make_measurement(switches=(switch,))
    found = find_switch(measurement, name=name)

    assert found is not None
    assert (found.kind, found.cause, found.where) == (None, name, "train.py:3")
    assert found in diagnose(measurement).findings
    assert diagnose(measurement).kind is Kind.COMPUTE_BOUND


@pytest.mark.parametrize(("num_backwards", "is_found"), [(404, True), (101, False)])
def test_a_suspicion_is_believed_where_passes_add_up(num_backwards: int, *, is_found: bool) -> None:
    item = Suspicion(code="accumulation_loss", where="train.py:44", text="loss.backward()")
    measurement = make_measurement(suspicions=(item,), num_backwards=num_backwards)
    found = find_suspicion(measurement, code="accumulation_loss")

    assert (found is not None) == is_found
    assert found is None or (found.where, found.kind) == ("train.py:44", None)


def test_graph_breaks_in_the_users_code_are_a_finding() -> None:
    ours = CompileEvent(reason="call to print", count=3, where="train.py:12")
    torchs = CompileEvent(reason="inside torch", count=9)
    compilation = Compilation(num_graphs=4, num_steps_touched=1, total_s=1.0, breaks=(torchs, ours))
    found = find_graph_breaks(make_measurement(compilation=compilation))

    assert found is not None
    assert (found.kind, found.where, numbers(found)) == (
        None,
        "train.py:12",
        {"num_graph_breaks": 3},
    )


# -- which is primary


def test_host_bound_takes_the_place_of_compute_bound() -> None:
    diagnosis = diagnose(make_measurement(ranks=(gc_rank(0, 0.25),)))

    assert diagnosis.kind is Kind.HOST_BOUND
    assert [finding.kind for finding in diagnosis.findings] == [Kind.HOST_BOUND]


def test_the_most_severe_finding_comes_first_even_if_it_is_no_bottleneck() -> None:
    span = Span(name="checkpoint", total_s=101 * 0.5, num_steps_touched=10)
    diagnosis = diagnose(make_measurement(spans=(span,)))

    assert diagnosis.findings[0].cause == "checkpoint"
    assert diagnosis.kind is Kind.COMPUTE_BOUND


def test_a_busy_machine_stands_behind_what_the_run_does_to_itself() -> None:
    span = Span(name="checkpoint", total_s=101 * 0.5, num_steps_touched=10)
    diagnosis = diagnose(make_measurement(spans=(span,), others_cores=3.5))

    assert diagnosis.kind is Kind.COMPUTE_BOUND
    assert [finding.cause for finding in diagnosis.findings][:2] == ["checkpoint", "neighbor"]


def test_time_without_a_name_stands_beside_another_kind() -> None:
    diagnosis = diagnose(
        make_measurement(other_s=0.4, compute_s=0.3, input_wait_s=0.3, fetch_s=0.3)
    )

    assert diagnosis.kind is Kind.INPUT_BOUND
    beside = next(f for f in diagnosis.findings if f.cause == "unattributed_time")
    assert beside.severity is Severity.INFO


def test_preparing_a_batch_has_a_name() -> None:
    diagnosis = diagnose(make_measurement(other_s=0.5, compute_s=0.5, prepare_fraction=0.45))

    assert diagnosis.findings[0].cause == "preprocessing"
    assert "unattributed_time" not in {finding.cause for finding in diagnosis.findings}


def test_batches_that_other_loaders_made_do_not_make_the_workers_slow() -> None:
    # One worker needs 2.1 ms for each of 100 batches of the training, a step takes 4 ms without
    # the wait; a validation and a test had as many batches.
    workers = WorkerSummary(
        num_workers=1, num_batches=210, fetch_s_per_batch=0.0011, collate_s_per_batch=0.001
    )
    waiting = make_measurement(
        input_wait_s=0.002,
        compute_s=0.004,
        workers=workers,
        missing={"fetch": "loads_in_workers", "collate": "loads_in_workers"},
    )

    found = find_input_wait(waiting)

    assert found is not None
    assert found.cause is None


@pytest.mark.parametrize(
    ("where", "num_updates", "num_ranks", "other"),
    [
        ("train.py:41", 95, 2, "train.py:41"),
        ("train.py:41", 95, 1, None),
        ("train.py:41", 12, 2, None),
        ("train.py:35", 95, 2, None),
    ],
)
def test_ranks_that_end_at_different_places_waited_in_different_calls(
    where: str, num_updates: int, num_ranks: int, other: str | None
) -> None:
    error = ScriptError(type="RuntimeError", text="closed", num_updates=95, where="train.py:35")
    ended = replace(
        make_measurement(),
        end=ProcessEnd(state=RunState.FAILED, exit_code=1),
        num_ranks=num_ranks,
        errors=(error, replace(error, where=where, num_updates=num_updates)),
    )

    found = find_failure(ended)

    assert found is not None
    assert (found.names or {}).get("other") == other
