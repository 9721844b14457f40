"""What changed when the step time did: each cause is named, and not its neighbor."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from steptime.core.codec import from_json, to_json
from steptime.diagnose.ailments.script.shifted import BY_CHANGE, find_shift
from steptime.diagnose.diagnosis import diagnose
from steptime.diagnose.shifts import lasting_shifts
from steptime.diagnose.shifts.lasting_shifts import find_shifts
from steptime.diagnose.values.finding import Diagnosis, Finding, Severity
from steptime.measure.values.over_time import DevicePoint, HostPoint, RunSeries, StepPoint
from steptime.report.words.run.run_words import describe_finding, describe_heading
from unit.builders import make_measurement

NUM_STEPS = 120
AT = 60  # the first step that is different
BEGAN = 1000.0


def make_steps(
    ratio: float = 2.0, *, rank: int = 0, grows: str = "forward", **fields: Any
) -> list[StepPoint]:
    """Steps of 100 ms, from `AT` on `ratio` times as long, which one phase alone takes."""
    end_s, steps = BEGAN, []
    for index in range(NUM_STEPS):
        # A little noise that no test depends on.
        wobble = 1 + 0.01 * ((index * 7) % 5 - 2)
        wall_s = {"forward": 0.05 * wobble, "communication": 0.02, "other": 0.03 * wobble}
        if index >= AT:
            wall_s[grows] += 0.1 * (ratio - 1)
        step_time_s = sum(wall_s.values())
        end_s += step_time_s
        steps.append(
            StepPoint(
                rank=rank,
                index=index,
                end_unix_s=end_s,
                step_time_s=step_time_s,
                wall_s=wall_s,
                is_steady=True,
                **fields,
            )
        )
    return steps


def end_before(steps: list[StepPoint]) -> float:
    return steps[AT - 1].end_unix_s


def make_host(
    steps: list[StepPoint], before: Mapping[str, float], after: Mapping[str, float]
) -> tuple[HostPoint, ...]:
    """A look at the machine each half second; one core of ours, quiet if nothing else is said."""
    change, found, t_unix_s = end_before(steps), [], BEGAN
    while t_unix_s < steps[-1].end_unix_s:
        t_unix_s += 0.5
        changed = before if t_unix_s <= change else after
        quiet = {"busy_cores": 1.0, "job_cores": 1.0}
        values: dict[str, Any] = {**quiet, **changed}
        found.append(HostPoint(t_unix_s=t_unix_s, dt_s=0.5, **values))
    return tuple(found)


def make_devices(
    steps: list[StepPoint], before: Mapping[str, Any], after: Mapping[str, Any]
) -> tuple[DevicePoint, ...]:
    change, found, t_unix_s = end_before(steps), [], BEGAN
    while t_unix_s < steps[-1].end_unix_s:
        t_unix_s += 0.5
        changed = before if t_unix_s <= change else after
        found.append(DevicePoint(t_unix_s=t_unix_s, device="GPU-1", **changed))
    return tuple(found)


def with_host(before: Mapping[str, float], after: Mapping[str, float], **steps: Any) -> RunSeries:
    points = make_steps(**steps)
    return RunSeries(steps=tuple(points), host=make_host(points, before, after))


def causes_of(series: RunSeries) -> tuple[str, ...]:
    (one,) = find_shifts(series)
    return one.shift.causes


def test_a_step_time_that_doubles_is_told_with_its_step_and_interval() -> None:
    steps = make_steps()

    (one,) = find_shifts(RunSeries(steps=tuple(steps)))

    shift = one.shift
    assert (shift.rank, shift.index) == (0, AT)
    assert shift.t_unix_s == end_before(steps)
    assert shift.ratio.estimate == pytest.approx(2.0, abs=0.05)
    assert shift.ratio.low <= shift.ratio.estimate <= shift.ratio.high
    assert shift.causes == ("phase:forward",)


def test_steps_that_do_not_count_are_not_looked_at() -> None:
    outliers = [s for s in make_steps(is_outlier=True) if s.index >= AT]
    series = RunSeries(steps=(*make_steps(1.0)[:AT], *outliers))

    assert find_shifts(series) == ()
    assert find_shifts(RunSeries()) == ()


NEIGHBOR = ({}, {"busy_cores": 2.0, "job_cores": 0.5})
CLOCK = ({"clock_hz": 3.0e9}, {"clock_hz": 1.6e9})
SWAP = ({"swap_in_bytes": 0}, {"swap_in_bytes": 8 << 20})
DISK = (
    {"disk_read_bytes": 0, "cached_bytes": 8 << 30},
    {"disk_read_bytes": 40 << 20, "cached_bytes": 8 << 30},
)
CACHE = (DISK[0], {"disk_read_bytes": 40 << 20, "cached_bytes": 2 << 30})
MEMORY = ({"available_bytes": 8 << 30}, {"available_bytes": 1 << 30})


@pytest.mark.parametrize(
    ("sides", "cause"),
    [
        (NEIGHBOR, "neighbor"),
        (CLOCK, "cpu_clock"),
        (SWAP, "swap"),
        (DISK, "disk"),
        (CACHE, "page_cache"),
        (MEMORY, "memory"),
        (({}, {"busy_cores": 0.6, "job_cores": 0.6}), "phase:other"),
    ],
)
def test_what_changed_with_it_is_named_first(
    sides: tuple[Mapping[str, float], Mapping[str, float]], cause: str
) -> None:
    causes = causes_of(with_host(*sides, grows="other"))

    assert causes[0] == cause
    assert causes[-1] == "phase:other"
    assert len(causes) <= 2


def test_more_work_in_the_arithmetic_is_a_larger_input() -> None:
    points = make_steps()
    sizes = [replace(p, sizes=(8.0, 64.0 if p.index < AT else 128.0, 0.0)) for p in points]
    series = RunSeries(steps=tuple(sizes), host=make_host(points, {}, {}))

    assert causes_of(series) == ("input_size", "phase:forward")


@pytest.mark.parametrize("sizes", [(8.0, 64.0), ()], ids=["same sizes", "sizes not known"])
def test_more_cpu_time_for_the_same_inputs_is_no_larger_input(sizes: tuple[float, ...]) -> None:
    assert causes_of(with_host({}, {}, sizes=sizes)) == ("phase:forward",)


def test_what_changed_the_other_way_is_no_cause() -> None:
    before, after = NEIGHBOR

    assert causes_of(with_host(after, before, grows="other")) == ("phase:other",)
    faster = causes_of(with_host(after, before, grows="other", ratio=0.8))
    assert faster == ("neighbor", "phase:other")


def test_a_single_look_on_one_side_is_no_cause() -> None:
    steps = make_steps(grows="other")
    host = make_host(steps, *NEIGHBOR)
    first_after = next(i for i, p in enumerate(host) if p.t_unix_s > end_before(steps))

    series = RunSeries(steps=tuple(steps), host=host[: first_after + 2])

    assert causes_of(series) == ("phase:other",)


def test_a_device_that_throttles_is_the_cause() -> None:
    steps = make_steps(1.4)
    devices = make_devices(
        steps,
        {"sm_clock_hz": 1.98e9, "temperature_c": 62.0},
        {"sm_clock_hz": 1.40e9, "temperature_c": 87.0, "throttle": ("thermal",)},
    )

    (one,) = find_shifts(RunSeries(steps=tuple(steps), devices=devices))

    assert one.shift.causes == ("throttle", "device_clock", "phase:forward")
    clock = one.causes[1]
    assert (clock.after, clock.unit) == (pytest.approx(0.71, abs=0.01), "x")
    finding = find_shift((one,))
    assert finding is not None
    assert "the device has held its clock down" in describe_finding(finding, None)


def test_a_device_that_throttled_all_along_is_no_cause() -> None:
    steps = make_steps(1.4)
    devices = make_devices(steps, {"throttle": ("power_cap",)}, {"throttle": ("power_cap",)})

    assert causes_of(RunSeries(steps=tuple(steps), devices=devices)) == ("phase:forward",)


def test_ranks_that_change_together_are_one_shift_of_the_rank_that_works_longer() -> None:
    steps = [*make_steps(grows="communication", rank=0), *make_steps(grows="forward", rank=1)]

    (one,) = find_shifts(RunSeries(steps=tuple(steps)))

    assert (one.shift.rank, one.shift.causes) == (1, ("phase:forward",))


# -- the finding


def finding_of(series: RunSeries) -> Finding:
    diagnosis = diagnose(make_measurement(), series)
    return next(f for f in diagnosis.findings if (f.cause or "").startswith("shift"))


@pytest.mark.parametrize(
    ("ratio", "severity"),
    [(2.0, Severity.CRITICAL), (1.3, Severity.WARNING), (1.2, Severity.INFO), (0.7, Severity.INFO)],
)
def test_a_shift_is_judged_by_what_a_step_has_lost(ratio: float, severity: Severity) -> None:
    found = finding_of(RunSeries(steps=tuple(make_steps(ratio, grows="other"))))

    assert (found.kind, found.cause, found.severity) == (None, "shift_phase", severity)


def test_the_numbers_behind_a_cause_are_in_the_finding_and_in_its_words() -> None:
    found = finding_of(with_host(*NEIGHBOR, grows="other"))

    numbers = {item.name: (item.value, item.unit) for item in found.evidence}
    assert numbers["neighbor_before"] == (0.0, "cores")
    assert numbers["neighbor_after"] == (1.5, "cores")
    text = describe_finding(found, 0.1)
    assert text.startswith(
        "from step 60 on a step takes 200 ms; before, it took 100 ms. That is 2.00x"
    )
    assert "other programs have kept 1.5 cores busy; before, they kept 0 busy." in text
    assert describe_heading(found) == "changed"


def test_what_others_made_of_a_step_leads_no_report() -> None:
    found = finding_of(with_host(*NEIGHBOR, grows="other"))

    assert (found.cause, found.severity) == ("shift_neighbor", Severity.INFO)


@pytest.mark.parametrize(("delayed", "cause"), [(0.5, "neighbor"), (0.02, "phase:other")])
def test_neighbors_are_the_cause_where_the_run_waited_for_a_core(
    delayed: float, cause: str
) -> None:
    before = {**NEIGHBOR[0], "delayed_fraction": 0.0}
    after = {**NEIGHBOR[1], "delayed_fraction": delayed}
    assert causes_of(with_host(before, after, grows="other"))[0] == cause


@pytest.mark.parametrize(("seconds", "cause"), [(2.0, "neighbor"), (1.0, "phase:other")])
def test_two_samples_of_a_side_do_if_they_cover_enough(seconds: float, cause: str) -> None:
    steps = make_steps(grows="other")
    begins = [end_before(steps) + place * seconds for place in (-2, -1, 0, 1)]
    host = tuple(
        HostPoint(t_unix_s=begin + seconds, dt_s=seconds, busy_cores=busy, job_cores=ours)
        for begin, busy, ours in zip(
            begins, (1.0, 1.0, 2.0, 2.0), (1.0, 1.0, 0.5, 0.5), strict=True
        )
    )
    assert causes_of(RunSeries(steps=tuple(steps), host=host))[0] == cause


def test_longer_waits_for_a_core_are_the_cause_though_others_took_no_more() -> None:
    taken = {"busy_cores": 2.0, "job_cores": 1.0}
    others = [{**taken, "delayed_fraction": delayed} for delayed in (0.1, 0.5)]
    alone = [{**host, "busy_cores": 1.1} for host in others]
    found = finding_of(with_host(others[0], others[1], grows="forward"))

    assert (found.cause, found.severity) == ("shift_core_wait", Severity.INFO)
    assert "waited for a core for 50.0 % of the time; before, it waited for 10.0 % of it" in (
        describe_finding(found, 0.1)
    )
    # Its own workers and threads may wait for each other.
    assert "core_wait" not in causes_of(with_host(alone[0], alone[1], grows="forward"))


def test_the_phase_that_it_shows_in_is_named() -> None:
    found = finding_of(RunSeries(steps=tuple(make_steps(grows="other"))))

    assert (
        "It shows in other Python, which takes 130 ms; before, it took 30.0 ms."
        in describe_finding(found, 0.1)
    )


def test_without_a_series_no_change_is_looked_for() -> None:
    assert diagnose(make_measurement()).shifts == ()


def test_a_diagnosis_with_shifts_survives_the_way_through_json() -> None:
    diagnosis = diagnose(make_measurement(), RunSeries(steps=tuple(make_steps())))

    assert len(diagnosis.shifts) == 1
    assert from_json(Diagnosis, to_json(diagnosis)) == diagnosis


def test_every_change_that_is_looked_for_has_a_row() -> None:
    source = inspect.getsource(lasting_shifts)
    words = set(re.findall(r'(?:name=|_clock\(|_rate\(\s*)"([a-z_]+)"', source))

    assert words == set(BY_CHANGE) - {"", "phase"}
    assert 'f"phase:' in source
