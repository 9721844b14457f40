"""What each rule says, when it abstains, and which finding is primary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptime.diagnose.ailments.compute.computing import find_compute
from steptime.diagnose.ailments.contention import find_contention, find_starved, find_throttled
from steptime.diagnose.ailments.input.waiting import find_input_wait, find_worker_startup
from steptime.diagnose.ailments.ranks.ranks import find_communication, find_straggler
from steptime.diagnose.ailments.scale import headroom
from steptime.diagnose.ailments.signals import find_missing_signals, phase_evidence
from steptime.diagnose.ailments.verdicts import (
    find_no_steps,
    find_noise,
    find_nothing,
    find_unattributed,
)
from steptime.diagnose.contended import is_contended
from steptime.diagnose.diagnosis import diagnose
from steptime.diagnose.values.finding import BottleneckKind, Finding, Severity
from steptime.measure.values.machine_load import WorkerSummary
from steptime.measure.values.measurement import Measurement, Span
from steptime.measure.values.wall_time import WallPart, WallTime
from steptime.report.words.run.run_words import describe_finding
from unit.builders import make_measurement, make_quantity, make_rank, make_steady

Kind = BottleneckKind


def numbers(finding: Finding | None) -> dict[str, float]:
    assert finding is not None
    return {evidence.name: evidence.value for evidence in finding.evidence}


# -- input


@pytest.mark.parametrize(
    ("input_wait_s", "severity"),
    [
        (0.09, None),
        (0.10, Severity.INFO),
        (0.19, Severity.INFO),
        (0.20, Severity.WARNING),
        (0.33, Severity.WARNING),
        (0.34, Severity.CRITICAL),
    ],
)
def test_input_wait_is_judged_by_its_share(input_wait_s: float, severity: Severity | None) -> None:
    found = find_input_wait(make_measurement(input_wait_s=input_wait_s, compute_s=1 - input_wait_s))

    assert (found.severity if found else None) == severity


def test_input_wait_above_a_third_of_the_step_is_input_bound() -> None:
    diagnosis = diagnose(make_measurement(input_wait_s=0.4, fetch_s=0.4, compute_s=0.6))

    assert diagnosis.kind is Kind.INPUT_BOUND
    assert diagnosis.findings[0].severity is Severity.CRITICAL
    assert diagnosis.findings[0].headroom_speedup == pytest.approx(1 / 0.6)


@pytest.mark.parametrize(
    ("times_s", "cause"),
    [
        ({"fetch_s": 0.3, "collate_s": 0.1}, "fetch"),
        ({"fetch_s": 0.1, "collate_s": 0.3}, "collate"),
        ({"fetch_s": 0.1, "collate_s": 0.1}, "loader"),
    ],
)
def test_in_process_loading_names_the_larger_part(times_s: dict[str, float], cause: str) -> None:
    found = find_input_wait(make_measurement(input_wait_s=0.5, **times_s))

    assert found is not None
    assert (found.cause, found.missing) == (cause, ())
    assert numbers(found)["fetch"] == times_s["fetch_s"]


IN_WORKERS = {"fetch": "loads_in_workers", "collate": "loads_in_workers"}


@pytest.mark.parametrize(
    ("fetch_s", "collate_s", "cause"),
    [
        (0.95, 0.1, "worker_fetch"),
        (0.1, 0.95, "worker_collate"),
        (0.1, 0.1, None),
        (0.1, 0.8, None),  # two workers make a batch in 0.45 s, and the step itself takes 0.5 s
    ],
)
def test_loading_in_workers_names_their_larger_sum_if_it_explains_the_wait(
    fetch_s: float, collate_s: float, cause: str | None
) -> None:
    workers = WorkerSummary(
        num_workers=2, num_batches=101, fetch_s_per_batch=fetch_s, collate_s_per_batch=collate_s
    )

    found = find_input_wait(make_measurement(input_wait_s=0.5, missing=IN_WORKERS, workers=workers))

    assert found is not None
    assert found.cause == cause
    assert numbers(found)["worker_fetch_per_batch"] == fetch_s


def test_a_wait_that_nothing_explains_has_no_cause_and_says_what_is_missing() -> None:
    found = find_input_wait(make_measurement(input_wait_s=0.5, missing=IN_WORKERS))

    assert found is not None
    assert found.cause is None
    assert found.missing == ("fetch", "workers")


def test_input_wait_that_was_not_observed_is_no_finding() -> None:
    measurement = make_measurement(missing={"input_wait": "no_loader_seen"})

    assert find_input_wait(measurement) is None
    assert find_missing_signals(measurement) == ("input_wait",)


def test_the_share_of_cpu_time_stands_beside_the_share_of_wall_time() -> None:
    found = find_input_wait(
        make_measurement(input_wait_s=0.5, compute_s=0.5, cpu_s={"input_wait": 0.1})
    )

    assert numbers(found) == {
        "input_wait": 0.5,
        "input_wait_mean": 0.5,
        "input_wait_cpu": 0.1,
        "fetch": 0.0,
        "fetch_mean": 0.0,
        "collate": 0.0,
        "collate_mean": 0.0,
    }


def test_without_cpu_time_there_is_no_share_of_it() -> None:
    measurement = make_measurement(
        steady=make_steady(make_quantity(1.0), step_cpu_s=make_quantity(0))
    )

    assert [e.name for e in phase_evidence(measurement, "forward")] == ["forward", "forward_mean"]
    assert phase_evidence(make_measurement(steady=None), "forward")[-1].name == "forward_mean"
    assert phase_evidence(make_measurement(missing={"forward": "inside"}), "forward") == ()


# -- worker start-up


def with_starts(total_s: float, num_steps_touched: int = 5, **fields: Any) -> Measurement:
    span = Span(name="epoch_start", total_s=total_s, num_steps_touched=num_steps_touched)
    return make_measurement(compute_s=0.1, num_steps=100, spans=(span,), **fields)


def test_workers_started_again_and_again_are_input_bound() -> None:
    diagnosis = diagnose(with_starts(total_s=5.0))

    assert diagnosis.kind is Kind.INPUT_BOUND
    assert diagnosis.findings[0].cause == "worker_startup"
    assert numbers(diagnosis.findings[0])["epoch_start"] == pytest.approx(5 / 15)


@pytest.mark.parametrize(
    "measurement",
    [
        with_starts(total_s=5.0, num_steps_touched=1),
        with_starts(total_s=0.5),
        with_starts(total_s=5.0, steady=None),
        with_starts(total_s=5.0, steady=make_steady(None)),
        make_measurement(),
    ],
    ids=["one start", "short", "no window", "empty window", "no start"],
)
def test_a_start_that_does_not_matter_is_no_finding(measurement: Measurement) -> None:
    assert find_worker_startup(measurement) is None


# -- ranks


def with_ranks(*times_s: Mapping[str, float], **fields: Any) -> Measurement:
    ranks = [
        make_rank(i, world_size=len(times_s), **{"forward": 1.0, **own})
        for i, own in enumerate(times_s)
    ]
    return make_measurement(compute_s=0.7, communication_s=0.3, ranks=tuple(ranks), **fields)


def test_an_exchange_that_all_ranks_pay_for_is_communication_bound() -> None:
    measurement = with_ranks({"communication": 0.5}, {"communication": 0.6})

    diagnosis = diagnose(measurement)

    assert diagnosis.kind is Kind.COMMUNICATION_BOUND
    assert diagnosis.findings[0].cause == "collectives"
    assert numbers(diagnosis.findings[0])["least_communication"] == pytest.approx(1 / 3)
    assert find_straggler(measurement) is None


def test_a_rank_the_others_wait_for_is_a_straggler() -> None:
    waits, works = {"communication": 0.7, "input_wait": 0.3}, {"input_wait": 1.0}
    measurement = with_ranks(waits, works)

    diagnosis = diagnose(measurement)

    assert diagnosis.kind is Kind.STRAGGLER
    assert diagnosis.findings[0].cause == "input_wait"
    assert numbers(diagnosis.findings[0])["late_rank"] == 1
    assert numbers(diagnosis.findings[0])["wait"] == pytest.approx(0.35)
    assert numbers(diagnosis.findings[0])["input_wait_excess"] == pytest.approx(0.35)
    assert find_communication(measurement) is None


def test_of_many_ranks_the_one_that_waits_least_is_late() -> None:
    waits = {"communication": 1.0}
    found = find_straggler(with_ranks(waits, waits, {"backward": 1.0}, waits))

    assert numbers(found)["late_rank"] == 2
    assert found is not None
    assert found.cause == "backward"


def test_a_straggler_whose_time_is_lost_in_many_places_has_no_cause() -> None:
    late = {"forward": 1.25, "backward": 0.35, "optimizer": 0.3, "other": 0.1}
    found = find_straggler(with_ranks({"communication": 1.0}, late))

    assert found is not None
    assert found.cause is None
    assert numbers(found)["backward_excess"] == pytest.approx(0.175)


@pytest.mark.parametrize(
    "ranks",
    [
        (make_rank(0, world_size=2, communication=1.0),),
        (make_rank(0, communication=1.0), make_rank(1)),
        (make_rank(0, world_size=2, communication=1.0), make_rank(1, world_size=2, n=0)),
        (make_rank(0, world_size=2, communication=1.0), make_rank(1, world_size=2, n=5)),
    ],
    ids=["one rank", "not one job", "no steps", "too few steps"],
)
def test_a_straggler_needs_two_ranks_to_compare(ranks: Any) -> None:
    assert find_straggler(make_measurement(ranks=ranks)) is None


def test_without_communication_there_is_nothing_to_wait_for() -> None:
    alone = make_measurement(missing={"communication": "single_rank"}, ranks=())

    assert find_communication(alone) is None
    assert find_missing_signals(with_ranks({}, {}, missing={"communication": "?"})) == (
        "communication",
    )


# -- contention


@pytest.mark.parametrize(
    ("others_cores", "idle_cores", "severity"),
    [
        (0.3, 0.0, None),
        (0.4, 0.0, Severity.INFO),
        (0.8, 0.0, Severity.WARNING),
        (2.0, 0.0, Severity.CRITICAL),
        (2.0, 0.4, Severity.CRITICAL),
        (2.0, 0.6, Severity.INFO),
    ],
)
def test_others_on_the_cores_are_contention_if_none_is_idle(
    others_cores: float, idle_cores: float, severity: Severity | None
) -> None:
    found = find_contention(make_measurement(others_cores=others_cores, idle_cores=idle_cores))

    assert (found.severity if found else None) == severity


def test_a_load_that_was_not_observed_is_no_finding() -> None:
    measurement = make_measurement(others_cores=None)

    assert find_contention(measurement) is None
    assert "host_load" in find_missing_signals(measurement)
    found = find_input_wait(make_measurement(input_wait_s=1.0, others_cores=None))
    assert found is not None
    assert found.missing == ("host_load",)


def test_a_run_is_contended_where_nothing_else_can_be_said_of_it() -> None:
    diagnosis = diagnose(make_measurement(compute_s=0.8, other_s=0.2, others_cores=2.0))

    assert diagnosis.kind is Kind.CONTENDED
    assert [finding.kind for finding in diagnosis.findings] == [Kind.CONTENDED]


def test_contention_stands_beside_a_finding_on_phases() -> None:
    diagnosis = diagnose(make_measurement(input_wait_s=0.5, fetch_s=0.5, others_cores=2.0))

    assert diagnosis.kind is Kind.INPUT_BOUND
    assert [finding.kind for finding in diagnosis.findings] == [Kind.INPUT_BOUND, Kind.CONTENDED]
    assert diagnosis.findings[0].missing == ()


def test_contention_below_a_warning_is_never_primary() -> None:
    diagnosis = diagnose(make_measurement(compute_s=0.8, other_s=0.2, others_cores=0.5))

    assert diagnosis.kind is Kind.BALANCED
    assert Kind.CONTENDED in [finding.kind for finding in diagnosis.findings]


@pytest.mark.parametrize(
    ("delayed", "severity"),
    [
        (0.0, Severity.INFO),
        (0.03, Severity.INFO),
        (0.25, Severity.WARNING),
        (0.4, Severity.CRITICAL),
    ],
)
def test_contention_is_judged_by_what_the_run_lost(delayed: float, severity: Severity) -> None:
    half = {"forward": 0.12, "backward": 0.24, "optimizer": 0.04, "other": 0.1}
    run = make_measurement(compute_s=0.8, other_s=0.2, others_cores=2.0, cpu_s=half)
    assert run.host is not None
    run = replace(run, host=replace(run.host, delayed_fraction=delayed))
    found = find_contention(run)

    assert found is not None
    assert found.severity is severity
    assert numbers(found)["lost"] == delayed
    assert (Kind.CONTENDED is diagnose(run).kind) == (severity is not Severity.INFO)


@pytest.mark.parametrize(
    ("delayed", "severity"),
    [
        (None, Severity.INFO),
        (0.0, Severity.INFO),
        (0.25, Severity.WARNING),
        (0.5, Severity.CRITICAL),
    ],
)
def test_a_quota_that_stops_the_run_is_judged_by_what_the_run_lost(
    delayed: float | None, severity: Severity
) -> None:
    half = {"forward": 0.12, "backward": 0.24, "optimizer": 0.04, "other": 0.1}
    run = make_measurement(compute_s=0.8, other_s=0.2, others_cores=1.0, idle_cores=2.5, cpu_s=half)
    assert run.host is not None
    host = replace(
        run.host, quota_cores=0.5, stopped_fraction=0.97, delayed_fraction=delayed, job_cores=0.5
    )
    run = replace(run, host=host)
    found = find_starved(run)

    assert found is not None
    assert found.severity is severity
    assert is_contended(run) == (severity is not Severity.INFO)
    beside = find_contention(run)  # others had cores, and idle ones were left
    assert beside is None or beside.severity is Severity.INFO
    assert find_starved(replace(run, host=replace(host, stopped_fraction=0.05))) is None
    assert find_starved(replace(run, host=replace(host, stopped_fraction=None))) is None


@pytest.mark.parametrize(
    ("share", "severity"), [(None, None), (0.05, None), (0.25, Severity.WARNING)]
)
def test_a_device_that_heat_held_down_is_found(
    share: float | None, severity: Severity | None
) -> None:
    run = make_measurement()
    assert run.host is not None
    found = find_throttled(replace(run, host=replace(run.host, throttled_fraction=share)))
    assert (None if found is None else found.severity) is severity


def test_a_step_that_takes_no_longer_than_its_cpu_time_has_lost_nothing() -> None:
    run = make_measurement(compute_s=0.8, other_s=0.2, others_cores=2.0)
    assert run.host is not None
    run = replace(run, host=replace(run.host, delayed_fraction=0.4))

    assert numbers(find_contention(run))["lost"] == 0.0
    assert diagnose(run).kind is not Kind.CONTENDED


def test_a_core_that_is_gone_seldom_and_for_long_is_told_by_the_mean_step() -> None:
    run = make_measurement(compute_s=0.8, other_s=0.2, others_cores=2.0)
    assert run.host is not None
    assert run.steady is not None
    run = replace(run, host=replace(run.host, delayed_fraction=0.4))
    cpu_s = run.steady.step_cpu_s.estimate
    run = replace(run, steady=replace(run.steady, mean_s=cpu_s, mean_of_all_s=1.25 * cpu_s))

    assert numbers(find_contention(run))["lost"] == pytest.approx(0.2)


# -- compute


def test_arithmetic_that_fills_four_fifths_of_the_step_is_compute_bound() -> None:
    assert diagnose(make_measurement(compute_s=0.89, other_s=0.11)).kind is Kind.COMPUTE_BOUND
    assert diagnose(make_measurement(compute_s=0.81, other_s=0.19)).kind is Kind.COMPUTE_BOUND
    assert diagnose(make_measurement(compute_s=0.79, other_s=0.21)).kind is Kind.BALANCED


def test_a_balanced_step_of_which_most_is_arithmetic_says_so() -> None:
    found = diagnose(make_measurement(compute_s=0.75, other_s=0.25)).findings[-1]
    little = find_nothing(make_measurement(compute_s=0.4, other_s=0.6))

    assert numbers(found)["compute"] == pytest.approx(0.75)
    assert little.evidence == ()


ON_GPU = (make_rank(device="cuda", forward=1.0),)


def test_on_a_device_only_its_own_clock_says_compute_bound() -> None:
    device_s = {"forward": 0.4, "backward": 0.55}
    busy = make_measurement(compute_s=1.0, device_s=device_s, ranks=ON_GPU)
    idle = make_measurement(compute_s=1.0, device_s={"forward": 0.4}, ranks=ON_GPU)
    blind = make_measurement(compute_s=1.0, ranks=ON_GPU)

    assert numbers(find_compute(busy)) == {"compute": pytest.approx(0.95)}
    assert find_compute(idle) is None
    assert find_compute(blind) is None
    assert find_missing_signals(blind) == ("device_time",)
    assert find_missing_signals(busy) == ()


@pytest.mark.parametrize("steady", [None, make_steady(None)])
def test_without_a_step_time_a_device_is_not_judged(steady: Any) -> None:
    assert (
        find_compute(make_measurement(device_s={"forward": 1}, ranks=ON_GPU, steady=steady)) is None
    )


# -- no verdict


def test_a_run_without_steps_is_inconclusive() -> None:
    diagnosis = diagnose(make_measurement(num_steps=0, steady=None, others_cores=2.0))

    assert diagnosis.kind is Kind.INCONCLUSIVE
    assert [finding.cause for finding in diagnosis.findings] == ["no_steps"]


def test_five_steady_steps_are_too_few_and_six_are_enough() -> None:
    def run(num_steps: int) -> Measurement:
        steady = make_steady(make_quantity(1.0, n=num_steps), num_steps=num_steps)
        return make_measurement(input_wait_s=0.5, compute_s=0.5, steady=steady)

    few = find_no_steps(run(5))

    assert few is not None
    assert few.cause == "too_few_steps"
    one = find_no_steps(run(1))
    assert one is not None
    assert describe_finding(one, None) == (
        "too few steps are left after warm-up: 1 of the 6 that are needed."
    )
    assert diagnose(run(5)).kind is Kind.INCONCLUSIVE
    assert diagnose(run(6)).kind is Kind.INPUT_BOUND


def test_too_few_steps_say_how_long_the_process_went_on_after_them() -> None:
    def run(after_s: float) -> Measurement:
        times_s = {"warmup": 0.5, "steps": 0.1, "after_steps": after_s}
        parts = tuple(WallPart(name=name, total_s=t_s) for name, t_s in times_s.items())
        wall = WallTime(total_s=1.0 + after_s, parts=parts)
        steady = make_steady(make_quantity(0.1, n=1), num_steps=1)
        return make_measurement(steady=steady, wall_time=wall)

    long, short = find_no_steps(run(40.0)), find_no_steps(run(1.5))

    assert numbers(long)["after_steps"] == 40.0
    assert long is not None
    assert long.cause == "unseen_updates"
    assert "The process worked for 40.0 s after the last step" in describe_finding(long, None)
    assert "after_steps" not in numbers(short)


def scattered(wall: float, cpu: float, **fields: Any) -> Measurement:
    steady = make_steady(
        make_quantity(1.0, half_width=wall), step_cpu_s=make_quantity(1.0, half_width=cpu)
    )
    return make_measurement(steady=steady, **fields)


def test_step_times_that_scatter_in_wall_and_cpu_time_are_inconclusive() -> None:
    diagnosis = diagnose(scattered(0.3, 0.25))

    assert diagnosis.kind is Kind.INCONCLUSIVE
    assert diagnosis.findings[0].cause == "noise"
    assert numbers(diagnosis.findings[0]) == {
        "step_time_half_width": pytest.approx(0.3),
        "step_cpu_half_width": pytest.approx(0.25),
    }


@pytest.mark.parametrize(
    "measurement",
    [
        scattered(0.3, 0.1),
        scattered(0.1, 0.3),
        scattered(0.3, 0.3, period=4),
        make_measurement(steady=None),
        make_measurement(steady=make_steady(make_quantity(0.0))),
    ],
    ids=["steady CPU time", "steady wall time", "kinds of step", "no window", "no time"],
)
def test_scatter_with_a_good_reason_is_no_noise(measurement: Measurement) -> None:
    assert find_noise(measurement) is None


def test_a_clear_finding_holds_in_spite_of_noise() -> None:
    assert diagnose(scattered(0.3, 0.3, input_wait_s=0.5)).kind is Kind.INPUT_BOUND


def test_a_step_that_nothing_explains_is_inconclusive_and_says_what_was_missing() -> None:
    measurement = make_measurement(
        compute_s=0.6, other_s=0.4, missing={"input_wait": "no_loader_seen"}
    )

    diagnosis = diagnose(measurement)

    assert diagnosis.kind is Kind.INCONCLUSIVE
    assert diagnosis.findings[0].cause == "unattributed_time"
    assert diagnosis.findings[0].missing == ("input_wait",)
    assert diagnosis.findings[0].headroom_speedup == pytest.approx(1 / 0.6)


def test_a_run_without_phases_has_nothing_unattributed() -> None:
    assert find_unattributed(make_measurement(missing={"other": "no_steady_steps"})) is None


# -- the verdict


def test_a_healthy_run_is_balanced_and_says_what_it_could_not_see() -> None:
    measurement = make_measurement(
        compute_s=0.8, other_s=0.2, missing={"input_wait": "no_loader_seen"}, others_cores=None
    )

    diagnosis = diagnose(measurement)

    assert diagnosis.kind is Kind.BALANCED
    assert diagnosis.findings[-1].missing == ("input_wait", "host_load")
    assert diagnosis.run_id == measurement.run_id


def test_the_largest_headroom_is_primary() -> None:
    ranks = [{"communication": 0.9}, {"input_wait": 0.9}]

    diagnosis = diagnose(with_ranks(*ranks, input_wait_s=0.4))

    assert [f.kind for f in diagnosis.findings] == [Kind.STRAGGLER, Kind.INPUT_BOUND]
    assert diagnosis.kind is Kind.STRAGGLER


def test_a_finding_at_info_alone_is_not_primary() -> None:
    diagnosis = diagnose(make_measurement(input_wait_s=0.15, compute_s=0.65, other_s=0.2))

    assert diagnosis.kind is Kind.BALANCED
    assert diagnosis.findings[0].kind is Kind.BALANCED
    assert diagnosis.findings[1].kind is Kind.INPUT_BOUND


def test_a_step_that_is_all_waiting_has_no_finite_headroom_and_comes_first() -> None:
    assert headroom(1.0) is None
    assert diagnose(make_measurement(input_wait_s=1.0, compute_s=0.0)).kind is Kind.INPUT_BOUND


@given(
    input_wait_s=st.floats(0, 1),
    compute_s=st.floats(0.01, 1),
    other_s=st.floats(0, 1),
    others_cores=st.none() | st.floats(0, 4),
)
def test_every_measurement_has_a_kind_and_a_finding_of_it(
    input_wait_s: float, compute_s: float, other_s: float, others_cores: float | None
) -> None:
    diagnosis = diagnose(
        make_measurement(
            input_wait_s=input_wait_s,
            compute_s=compute_s,
            other_s=other_s,
            others_cores=others_cores,
        )
    )

    severities = [finding.severity for finding in diagnosis.findings]
    order = [Severity.CRITICAL, Severity.WARNING, Severity.INFO]
    assert diagnosis.kind in [finding.kind for finding in diagnosis.findings]
    assert severities == sorted(severities, key=order.index)
