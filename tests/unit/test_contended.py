"""What holds beside busy neighbors: each judgement on made-up measurements, and what opens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptime.core.process_end import ProcessEnd, RunState
from steptime.diagnose.ailments.all_ailments import AILMENTS
from steptime.diagnose.ailments.own_share import own_fraction
from steptime.diagnose.contended import is_contended, judge_again
from steptime.diagnose.diagnosis import diagnose
from steptime.diagnose.values.finding import (
    BottleneckKind,
    Diagnosis,
    Finding,
    HeldBy,
    Severity,
)
from steptime.measure.values.machine_load import WorkerSummary
from steptime.measure.values.measurement import Measurement, Span
from steptime.measure.values.observations import (
    Compilation,
    CompileEvent,
    GcPauses,
    MemoryUse,
    Operators,
    ScriptError,
    Suspicion,
    Switch,
)
from steptime.report.words.run.advice import choose_headline, next_act
from steptime.report.words.run.run_words import describe_finding
from unit.builders import make_measurement, make_phases, make_quantity, make_rank, make_steady

Kind = BottleneckKind
MODEL = {"forward": 0.3, "backward": 0.6, "optimizer": 0.1}
IN_WORKERS = {"fetch": "loads_in_workers", "collate": "loads_in_workers"}


def busy(others_cores: float = 2.0, **fields: Any) -> Measurement:
    """A measurement on a full machine of four cores, of which others had two."""
    return make_measurement(others_cores=others_cores, **fields)


def starved(
    times_s: Mapping[str, float], on_core: Mapping[str, float], **fields: Any
) -> Measurement:
    """One thread with these times by phase, and the part of each in which it had its core."""
    cpu_s = {name: on_core.get(name, 0.5) * time_s for name, time_s in times_s.items()}
    step_s = sum(time_s for name, time_s in times_s.items() if name not in ("fetch", "collate"))
    phases = make_phases(times_s, cpu_s=cpu_s)
    values: dict[str, Any] = {
        "phases": phases,
        "steady": make_steady(make_quantity(step_s), step_cpu_s=make_quantity(sum(cpu_s.values()))),
        "ranks": (replace(make_rank(), phases=phases),),
    }
    return busy(**{**values, **fields})


def headline(diagnosis: Diagnosis) -> tuple[Kind | None, str | None]:
    found = choose_headline(diagnosis)
    assert found is not None
    return found.kind, found.cause


def finding_of(measurement: Measurement, cause: str | None, kind: Kind | None) -> Finding:
    found = diagnose(measurement).findings
    return next(one for one in found if (one.kind, one.cause) == (kind, cause))


def own_share(finding: Finding) -> float:
    return next(e.value for e in finding.evidence if e.name == "own_share")


# -- the rows


def test_each_row_says_why_it_holds_or_does_not() -> None:
    for row in AILMENTS:
        assert row.when_contended.why.endswith("."), row
        assert row.when_contended.why[0].isupper(), row


def test_only_cpu_time_is_judged_again() -> None:
    judged = {row.when_contended.held_by for row in AILMENTS if row.when_contended.own_share}
    assert judged == {HeldBy.CPU_TIME}


def test_what_the_neighbor_is_or_makes_is_no_finding_about_the_run() -> None:
    hints = {row.cause for row in AILMENTS if row.when_contended.held_by is HeldBy.NOTHING}
    assert hints == {"neighbor", "noise", "shift_neighbor", "shift_core_wait"}


# -- the own share of a phase


def test_a_load_that_stretches_all_phases_alike_leaves_their_shares() -> None:
    measured = starved({"input_wait": 0.4, "fetch": 0.4, **MODEL}, {})

    assert own_fraction(measured, "input_wait") == pytest.approx(0.4 / 1.4)


def test_a_wait_that_uses_no_core_lost_nothing_to_others() -> None:
    """A disk is as slow as on a quiet machine, where the model would be twice as fast."""
    measured = starved({"input_wait": 0.4, **MODEL}, {"input_wait": 0.0})

    assert own_fraction(measured, "input_wait") == pytest.approx(0.4 / 1.4)  # as it was measured


def test_a_phase_that_always_wants_a_core_loses_its_share_to_phases_that_wait() -> None:
    measured = starved({"input_wait": 0.5, **MODEL}, dict.fromkeys(MODEL, 0.1))

    kept_s = 0.25 + 0.9  # half of the one; of the others no more than they used
    assert own_fraction(measured, "input_wait") == pytest.approx(0.25 / kept_s)


def test_arithmetic_shares_its_cpu_time_among_threads() -> None:
    rank = replace(make_rank(), num_threads=2)
    measured = starved({"input_wait": 0.5, **MODEL}, dict.fromkeys(MODEL, 1.0), ranks=(rank,))

    # Two threads had one core, a reader half of one: both lost half.
    assert own_fraction(measured, "input_wait") == pytest.approx(1 / 3)


def test_without_cpu_times_no_share_is_known() -> None:
    phases = make_phases({"input_wait": 0.5, **MODEL}, cpu_s={})
    measured = busy(phases=phases, ranks=())

    assert own_fraction(measured, "input_wait") is None


@given(wait=st.floats(0.0, 2.0), on_core=st.floats(0.0, 1.0), model_on_core=st.floats(0.05, 1.0))
def test_no_share_becomes_larger_than_it_was_measured(
    wait: float, on_core: float, model_on_core: float
) -> None:
    shares = {"input_wait": on_core, **dict.fromkeys(MODEL, model_on_core)}
    own = own_fraction(starved({"input_wait": wait, **MODEL}, shares), "input_wait")

    assert own is not None
    assert 0 <= own <= wait / (wait + 1) + 1e-9


# -- rules that are judged again


def test_loading_in_process_opens_beside_a_neighbor_with_what_is_its_own() -> None:
    measured = starved({"input_wait": 0.5, "fetch": 0.5, **MODEL}, {})
    diagnosis = diagnose(measured)

    assert headline(diagnosis) == (Kind.INPUT_BOUND, "fetch")
    found = diagnosis.findings[0]
    assert (found.severity, found.held_by) == (Severity.CRITICAL, HeldBy.CPU_TIME)
    assert own_share(found) == pytest.approx(1 / 3)
    assert found.headroom_speedup == pytest.approx(1.5)
    assert "num_workers" in next_act(measured, diagnosis).sentence


def with_workers(cpu_s: float, wall_s: float) -> Measurement:
    """A step of 1 s waits 0.5 s for two workers; the model has half of a core."""
    workers = WorkerSummary(
        num_workers=2,
        num_batches=101,
        fetch_s_per_batch=wall_s,
        collate_s_per_batch=0.0,
        cpu_s_per_batch=cpu_s,
    )
    times_s = {"input_wait": 0.5, "forward": 0.2, "backward": 0.3}
    measured = starved(times_s, {"input_wait": 0.0}, workers=workers)
    phases = tuple(
        replace(p, missing="loads_in_workers", median_s=None, fraction=None, cpu_median_s=None)
        if p.name in IN_WORKERS
        else p
        for p in measured.phases
    )
    return replace(measured, phases=phases)


def test_workers_that_only_lost_their_cores_are_no_bottleneck() -> None:
    measured = with_workers(cpu_s=0.4, wall_s=0.8)  # 0.2 s a step if both had their cores
    found = finding_of(measured, None, Kind.INPUT_BOUND)

    assert (found.severity, found.held_by) == (Severity.INFO, HeldBy.NOTHING)
    assert found.missing == ("quiet_machine",)
    assert found.headroom_speedup is None
    assert diagnose(measured).kind is not Kind.INPUT_BOUND


@pytest.mark.parametrize("cpu_s", [0.9, 0.0], ids=["that compute", "that wait for a disk"])
def test_workers_that_are_too_slow_by_themselves_stay_the_bottleneck(cpu_s: float) -> None:
    found = finding_of(with_workers(cpu_s=cpu_s, wall_s=1.9), "worker_fetch", Kind.INPUT_BOUND)

    assert found.held_by is HeldBy.CPU_TIME
    assert own_share(found) == pytest.approx(0.5)


def test_preprocessing_keeps_the_part_of_the_phase_that_it_is_in() -> None:
    measured = starved({"other": 0.5, **MODEL}, {}, prepare_fraction=0.3)
    found = finding_of(measured, "preprocessing", Kind.INPUT_BOUND)

    assert own_share(found) == pytest.approx(0.3)


ON_GPU = (make_rank(device="cuda", forward=1.0),)


@pytest.mark.parametrize(("host_cpu_s", "held_by"), [(0.9, HeldBy.CPU_TIME), (0.2, HeldBy.NOTHING)])
def test_a_device_waits_for_a_host_that_has_too_much_to_do_and_not_for_one_that_starves(
    host_cpu_s: float, held_by: HeldBy
) -> None:
    measured = busy(
        compute_s=1.0, cpu_s={"forward": host_cpu_s}, device_s={"forward": 0.4}, ranks=ON_GPU
    )
    found = finding_of(measured, "launches", Kind.HOST_BOUND)

    assert found.held_by is held_by


def test_copies_and_waits_for_the_device_keep_their_own_share() -> None:
    times_s = {"h2d": 0.4, "sync": 0.4, **MODEL}
    phases = make_phases(times_s, cpu_s=times_s, device_s={"forward": 0.5})
    steady = make_steady(make_quantity(1.8))
    measured = busy(phases=phases, steady=steady, ranks=ON_GPU)

    copies = finding_of(measured, "copies", Kind.INPUT_BOUND)
    sync = finding_of(measured, "sync", Kind.HOST_BOUND)
    assert own_share(copies) == own_share(sync) == pytest.approx(0.4 / 1.8)


def ranks_of(*cpu: Mapping[str, float], communication: tuple[float, ...]) -> Measurement:
    times = [{"forward": 1 - wait, "communication": wait} for wait in communication]
    ranks = tuple(
        replace(
            make_rank(i, world_size=len(cpu), **wall_s),
            phases=make_phases(wall_s, cpu_s={"communication": 0.0, **cpu_s}),
        )
        for i, (wall_s, cpu_s) in enumerate(zip(times, cpu, strict=True))
    )
    return busy(compute_s=0.6, communication_s=0.4, ranks=ranks, num_ranks=len(ranks))


def test_ranks_that_wait_in_turn_for_a_core_do_not_pay_for_the_exchange() -> None:
    starving = ranks_of({"forward": 0.3}, {"forward": 0.3}, communication=(0.4, 0.4))
    working = ranks_of(*({"forward": 0.3, "communication": 0.2},) * 2, communication=(0.4, 0.4))

    assert finding_of(starving, "collectives", Kind.COMMUNICATION_BOUND).held_by is HeldBy.NOTHING
    found = finding_of(working, "collectives", Kind.COMMUNICATION_BOUND)
    assert own_share(found) == pytest.approx(0.4)


@pytest.mark.parametrize(("late_cpu_s", "held_by"), [(0.9, HeldBy.CPU_TIME), (0.5, HeldBy.NOTHING)])
def test_a_rank_is_late_if_it_has_more_to_do_and_not_if_it_lost_its_core(
    late_cpu_s: float, held_by: HeldBy
) -> None:
    measured = ranks_of({"forward": 0.5}, {"forward": late_cpu_s}, communication=(0.5, 0.0))
    found = finding_of(measured, "forward", Kind.STRAGGLER)

    assert found.held_by is held_by


def test_a_rank_that_waits_for_its_disk_is_late_beside_a_neighbor() -> None:
    measured = ranks_of({"forward": 0.4}, {"forward": 0.4}, communication=(0.5, 0.0))
    waits = make_phases({"input_wait": 0.5, "forward": 0.5}, cpu_s={"forward": 0.4})
    late = replace(measured.ranks[1], phases=waits)
    measured = replace(measured, ranks=(measured.ranks[0], late))

    found = finding_of(measured, "input_wait", Kind.STRAGGLER)
    assert found.held_by is HeldBy.CPU_TIME


def test_a_rank_that_sleeps_far_longer_than_its_cpu_time_explains_is_late() -> None:
    measured = ranks_of({"forward": 0.02}, {"forward": 0.02}, communication=(0.6, 0.0))

    assert finding_of(measured, "forward", Kind.STRAGGLER).held_by is HeldBy.CPU_TIME


def test_a_run_that_died_of_memory_says_so_once() -> None:
    error = ScriptError(type="MemoryError", text="", num_updates=30, is_memory=True)
    findings = diagnose(busy(errors=(error,))).findings

    assert [f.cause for f in findings].count("out_of_memory") == 1
    assert findings[0].held_by is HeldBy.FACTS


def test_a_straggler_without_a_phase_of_its_own_is_a_hint() -> None:
    found = finding_of(ranks_of({}, {}, communication=(0.5, 0.0)), "forward", Kind.STRAGGLER)
    assert judge_again(replace(found, cause=None), busy()).held_by is HeldBy.NOTHING


def test_arithmetic_that_had_its_core_for_a_tenth_of_its_time_is_compute_bound() -> None:
    assert headline(diagnose(starved(MODEL, dict.fromkeys(MODEL, 0.11)))) == (
        Kind.COMPUTE_BOUND,
        None,
    )
    assert headline(diagnose(starved(MODEL, dict.fromkeys(MODEL, 0.09))))[0] is Kind.CONTENDED


def test_code_without_a_name_is_the_verdict_if_a_third_is_its_own() -> None:
    measured = starved({"other": 0.8, **MODEL}, {})
    assert headline(diagnose(measured)) == (Kind.INCONCLUSIVE, "unattributed_time")
    lost = starved({"other": 0.6, **MODEL}, dict.fromkeys(MODEL, 0.05))
    assert headline(diagnose(lost)) == (Kind.CONTENDED, "neighbor")


# -- rules that hold as they are


def compiled(num_again: int) -> Compilation:
    events = (CompileEvent(count=num_again, where="train.py:9", reason="size"),)
    return Compilation(
        num_graphs=num_again, num_steps_touched=9, total_s=1.0, recompiles=events, breaks=events
    )


AS_THEY_ARE: Mapping[str, tuple[dict[str, Any], str]] = {
    "checkpoint": (
        {"spans": (Span(name="checkpoint", total_s=25.0, num_steps_touched=9),)},
        "checkpoint",
    ),
    "evaluation": (
        {"spans": (Span(name="evaluation", total_s=25.0, num_steps_touched=9),)},
        "evaluation",
    ),
    "workers start again": (
        {"spans": (Span(name="epoch_start", total_s=25.0, num_steps_touched=9),)},
        "worker_startup",
    ),
    "recompiling": ({"compilation": compiled(9)}, "recompile"),
    "graph breaks": ({"compilation": compiled(9)}, "graph_breaks"),
    "a switch": ({"switches": (Switch(name="anomaly_mode"),)}, "anomaly_mode"),
    "a suspicion": (
        {
            "suspicions": (Suspicion(code="accumulation_loss", where="a.py:1", text="loss"),),
            "num_backwards": 404,
        },
        "accumulation_loss",
    ),
    "garbage": (
        {
            "ranks": (
                replace(make_rank(), gc=GcPauses(fraction=0.3, pauses_per_step=1, s_per_step=0.1)),
            )
        },
        "gc",
    ),
    "page faults": (
        {
            "ranks": (
                replace(
                    make_rank(forward=0.1),
                    host_memory=MemoryUse(
                        first_bytes=1,
                        last_bytes=1,
                        peak_bytes=1,
                        num_samples=9,
                        minor_faults_per_step=30_000.0,
                        system_cpu_s_per_step=0.05,
                    ),
                ),
            )
        },
        "page_faults",
    ),
    "tiny operators": (
        {"operators": Operators(num=20_000, num_tiny=20_000, tiny_s=0.2, large_s=0.0)},
        "tiny_operators",
    ),
}


@pytest.mark.parametrize("name", AS_THEY_ARE)
def test_counts_and_ratios_hold_as_they_are_and_open_the_report(name: str) -> None:
    fields, cause = AS_THEY_ARE[name]
    quiet, contended = diagnose(make_measurement(**fields)), diagnose(busy(**fields))

    assert is_contended(busy(**fields))
    found = next(one for one in contended.findings if one.cause == cause)
    alone = next(one for one in quiet.findings if one.cause == cause)
    assert found.held_by in (HeldBy.FACTS, HeldBy.SAME_LOAD, HeldBy.CPU_TIME)
    assert replace(found, held_by=None) == alone
    assert headline(contended)[0] is not Kind.CONTENDED


def test_spans_of_the_whole_run_are_compared_with_all_of_its_steps() -> None:
    spans = (Span(name="checkpoint", total_s=25.0, num_steps_touched=9),)
    steady = replace(make_steady(make_quantity(0.25)), num_beside_neighbor=50, mean_of_all_s=0.5)
    found = finding_of(make_measurement(spans=spans, steady=steady), "checkpoint", None)

    assert found.evidence[0].value == pytest.approx(25 / (25 + 101 * 0.5))


def test_a_change_that_the_neighbor_made_is_a_hint_where_its_steps_are_left_out() -> None:
    shift = Finding(kind=None, cause="shift_neighbor", severity=Severity.CRITICAL, evidence=())
    found = judge_again(shift, busy())

    assert (found.severity, found.held_by) == (Severity.INFO, HeldBy.NOTHING)
    assert found.missing == ()


def test_graph_breaks_open_even_beside_a_critical_neighbor() -> None:
    measured = busy(compute_s=0.8, other_s=0.2, **AS_THEY_ARE["a switch"][0])
    diagnosis = diagnose(measured)

    assert diagnosis.kind is Kind.CONTENDED
    assert diagnosis.findings[0].severity is Severity.CRITICAL
    assert headline(diagnosis) == (None, "anomaly_mode")


def test_nothing_is_judged_again_on_a_quiet_machine_or_beside_idle_cores() -> None:
    for fields in ({"others_cores": 0.0}, {"others_cores": 2.0, "idle_cores": 1.0}):
        diagnosis = diagnose(make_measurement(input_wait_s=0.5, fetch_s=0.5, **fields))
        assert {finding.held_by for finding in diagnosis.findings} == {None}


def test_a_finding_of_another_version_stays_as_it_is() -> None:
    strange = Finding(kind=None, cause="gremlin", severity=Severity.INFO, evidence=())
    assert judge_again(strange, busy()) == strange


BOOM = ScriptError(type="ValueError", text="boom", num_updates=21, is_memory=False, where="t.py:3")


@pytest.mark.parametrize(
    ("errors", "end", "words"),
    [
        ((BOOM,), ProcessEnd(state=RunState.FAILED, exit_code=1), "ValueError, after 21"),
        ((), ProcessEnd(state=RunState.FAILED, exit_code=3), "exit code 3, after 101"),
        ((), ProcessEnd(state=RunState.KILLED, signal=11), "SIGSEGV, after 101"),
    ],
)
def test_a_run_that_failed_says_so_before_it_names_others(
    errors: tuple[ScriptError, ...], end: ProcessEnd, words: str
) -> None:
    run = busy(errors=errors, end=end, phases=make_phases({"other": 0.2, "forward": 0.2}))
    assert is_contended(run)

    first = choose_headline(diagnose(run))

    assert first is not None
    assert first.cause == "failure"
    assert describe_finding(first, None).startswith(f"the command ended with {words} updates.")
    assert next_act(run, diagnose(run)).sentence.startswith("Mend what the script itself reports.")


@pytest.mark.parametrize(
    "end",
    [
        ProcessEnd(state=RunState.FINISHED, exit_code=0),
        ProcessEnd(state=RunState.FAILED, exit_code=130),
        ProcessEnd(state=RunState.KILLED, signal=15),
    ],
)
def test_who_ends_a_run_knows_it(end: ProcessEnd) -> None:
    assert "failure" not in {one.cause for one in diagnose(busy(end=end)).findings}
