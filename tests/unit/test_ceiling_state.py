"""The state of a ceiling: what raises a doubt, and what no doubt feeds."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from steptime.app.run.observed_run import ObservedRun
from steptime.app.stored.kept_ceilings import find_ceilings, note_exceeded
from steptime.core.devices.machine_condition import MachineCondition, find_changes
from steptime.core.interval import Interval
from steptime.core.store import Run
from steptime.diagnose.diagnosis import diagnose
from steptime.diagnose.values.finding import BottleneckKind
from steptime.diagnose.values.reach_values import Exceeded
from steptime.diagnose.waterfall.step_waterfall import make_picture
from steptime.launch.values import CommandRecord
from steptime.machine.ceiling_state import judge
from steptime.machine.values.ceiling_values import Ceiling, Ceilings, Point, Setting
from steptime.measure.values.measurement import Measurement
from steptime.watch.host.condition_reader import read_condition
from unit.test_machine_ceilings import make_bench, make_ceiling, make_ceilings
from unit.test_roofs_command import ceilings_of_here, keep_ceilings, keep_run
from unit.test_waterfall import elementwise, make_count, make_group, make_run

H100 = "NVIDIA H100 80GB HBM3"


def doubts_of(*found: Ceiling, **parts: Any) -> tuple[str, ...]:
    """The doubts of the first ceiling."""
    return judge(make_ceilings(*found, **parts)).ceilings[0].state.doubts


def seen(**state: Any) -> Ceiling:
    one = make_ceiling()
    return replace(one, state=replace(one.state, **state))


def rate_of(estimate: float) -> Interval:
    return Interval(estimate=estimate, low=0.9 * estimate, high=1.1 * estimate, n=20)


def bandwidth(kind: str, best: float, variant: str = "memory", **parts: Any) -> Ceiling:
    given = {"dtype": None, "unit": "bytes_per_s", "rate": rate_of(0.95 * best), "best_rate": best}
    return make_ceiling(kind=kind, variant=variant, **{**given, **parts})


# -- what raises a doubt


@pytest.mark.parametrize(
    ("one", "doubt"),
    [
        (make_ceiling(others_cores=1.5), "others_busy"),
        (seen(stolen_cores=0.4), "stolen"),
        (seen(num_throttles=3), "throttled"),
        (seen(device_busy_fraction=0.5), "device_busy"),
        (make_ceiling(rate=rate_of(0.9e12)), "spread"),
        (make_ceiling(points=(Point(setting=Setting(), rate=1.9e12),)), "spread"),
        (seen(exceeded_rate=1.6e12), "exceeded"),
    ],
)
def test_each_disturbance_makes_a_ceiling_provisional(one: Ceiling, doubt: str) -> None:
    (found,) = judge(make_ceilings(one)).ceilings

    assert found.state.doubts == (doubt,)
    assert found.is_provisional


def test_a_ceiling_from_a_quiet_machine_is_firm() -> None:
    (found,) = judge(make_ceilings(seen(stolen_cores=0.01, num_throttles=0))).ceilings

    assert not found.is_provisional
    assert found.state.spread_fraction == pytest.approx(1 - 1.34 / 1.4)


def test_what_a_run_reached_within_five_percent_is_no_doubt() -> None:
    assert doubts_of(seen(exceeded_rate=1.04 * 1.4e12)) == ()


def test_programs_on_other_cores_share_the_memory_and_not_the_cores() -> None:
    beside = {"others_cores": 1.5, "setting": Setting(num_threads=2)}

    assert doubts_of(make_ceiling(**beside)) == ()
    assert doubts_of(bandwidth("copy", 9e9, **beside)) == ("others_busy",)


def test_a_cache_slower_than_memory_and_a_copy_far_below_the_triad_are_impossible() -> None:
    memory, cache = bandwidth("copy", 10e9), bandwidth("copy", 8e9, "cache")
    assert doubts_of(cache, memory) == ("below_others",)
    assert doubts_of(memory, cache) == ()
    slow = bandwidth("copy", 1.28e9)
    assert doubts_of(slow, bandwidth("triad", 10e9)) == ("below_others",)


@pytest.mark.parametrize(
    ("tflops", "doubts"),
    [(700.0, ()), (1100.0, ("above_datasheet",)), (90.0, ("below_datasheet",))],
)
def test_a_gpu_reaches_neither_more_nor_several_times_less_than_its_datasheet(
    tflops: float, doubts: tuple[str, ...]
) -> None:
    rate = tflops * 1e12
    one = make_ceiling(device="cuda:0", rate=rate_of(0.97 * rate), best_rate=rate)

    assert doubts_of(one, bench=make_bench(device_names=(H100,))) == doubts


# -- the state of the machine


def test_only_what_both_states_know_can_differ() -> None:
    before = MachineCondition(cpus="0-7", governor="performance", power_limits_w={"GPU-1": 700.0})

    assert find_changes(before, replace(before, governor=None)) == ()
    assert find_changes(before, replace(before, governor="powersave")) == ("governor",)
    assert find_changes(before, replace(before, cpus="0-3", quota_cores=2.0)) == ("cpus",)
    assert find_changes(before, replace(before, power_limits_w={"GPU-2": 300.0})) == ()
    capped = replace(before, power_limits_w={"GPU-1": 300.0})
    assert find_changes(before, capped) == ("power_limits_w",)


def test_the_state_of_the_processors_is_read_from_the_kernels_files(tmp_path: Path) -> None:
    core = min(os.sched_getaffinity(0))
    clock = tmp_path / "sys" / "devices" / "system" / "cpu" / f"cpu{core}" / "cpufreq"
    clock.mkdir(parents=True)
    (clock / "scaling_governor").write_text("powersave\n")
    (clock / "scaling_max_freq").write_text("2400000\n")
    boost = clock.parents[1] / "intel_pstate"
    boost.mkdir()
    (boost / "no_turbo").write_text("1\n")

    found = read_condition(proc=tmp_path / "proc", sys_folder=tmp_path / "sys")
    assert (found.governor, found.max_frequency_hz) == ("powersave", 2.4e9)
    assert (found.is_boosting, found.quota_cores) == (False, 0.0)
    assert found.cpus is not None
    bare = read_condition(proc=tmp_path, sys_folder=tmp_path)
    assert (bare.governor, bare.is_boosting) == (None, None)


def test_ceilings_of_another_state_of_the_machine_are_provisional() -> None:
    here = MachineCondition(cpus="0-7", governor="performance")
    found = make_ceilings(make_ceiling(), condition=here)

    slow = judge(found, condition=replace(here, governor="powersave"))
    assert slow.ceilings[0].state.doubts == ("other_state",)
    assert not judge(found, condition=here).ceilings[0].is_provisional
    # The copy in a run's folder keeps it.
    assert judge(slow).ceilings[0].state.doubts == ("other_state",)


# -- nothing is judged by it


def held_by_memory() -> Measurement:
    return make_run(
        make_count(make_group(time_s=0.1), elementwise(time_s=0.5, gigabytes=4.5)),
        {"forward": 0.61},
    )


def judged_here(**state: Any) -> Ceilings:
    """The usual ceilings of the tests on waterfalls, with that state for memory."""
    found = ceilings_of_here()
    ceilings = [replace(one, **state) if one.variant == "memory" else one for one in found.ceilings]
    return judge(replace(found, ceilings=tuple(ceilings)))


def test_a_memory_of_a_busy_minute_makes_nobody_bandwidth_bound() -> None:
    run = held_by_memory()
    firm = make_picture(run, judged_here(others_cores=0.0))
    busy = make_picture(run, judged_here(others_cores=1.4))

    assert diagnose(run, None, firm.waterfall).kind is BottleneckKind.MEMORY_BANDWIDTH_BOUND
    assert busy.waterfall.provisional == ("memory",)
    assert (busy.waterfall.is_conclusive, busy.waterfall.lacking) == (False, ("firm_ceilings",))
    assert diagnose(run, None, busy.waterfall) == diagnose(run)
    assert busy.waterfall.gain_of("precision") is None
    assert busy.roofline.roofs is not None
    assert busy.roofline.roofs.doubts == {"memory": ("others_busy",)}


def test_launching_stays_launching_whatever_a_busy_minute_says_of_memory() -> None:
    calls = elementwise(time_s=0.05, gigabytes=0.064, num=2000)
    product = make_group(time_s=0.01, flops=10**9)
    run = make_run(make_count(product, calls), {"forward": 0.08})
    slow = {"rate": rate_of(1.2e9), "best_rate": 1.28e9}

    quiet = make_picture(run, judged_here(others_cores=0.0)).waterfall
    assert diagnose(run, None, quiet).findings[0].cause == "overhead"
    # With that bandwidth taken for true: MEMORY_BANDWIDTH_BOUND, critical, 2.67x.
    wrong = make_picture(run, judged_here(others_cores=0.0, **slow)).waterfall
    first = diagnose(run, None, wrong).findings[0]
    assert (first.kind, round(first.headroom_speedup or 0.0, 2)) == (
        BottleneckKind.MEMORY_BANDWIDTH_BOUND,
        2.67,
    )
    busy = make_picture(run, judged_here(others_cores=1.4, **slow)).waterfall
    found = diagnose(run, None, busy)
    assert found == diagnose(run)
    assert all(one.headroom_speedup is None for one in found.findings)


def test_a_product_above_its_ceiling_proves_the_ceiling_wrong() -> None:
    fast = replace(make_group(time_s=0.05), flops=10**10, moved_bytes=1)
    run = make_run(make_count(fast, elementwise(time_s=1.0, gigabytes=9)), {"forward": 1.05})
    found = make_picture(run, judged_here()).waterfall

    (one,) = found.exceeded
    assert (one.ceiling, one.is_proof, round(one.ratio, 1)) == ("fp32", True, 2.0)
    assert found.provisional == ("fp32",)  # although it is 5 % of the step
    assert not found.is_conclusive
    conv = replace(fast, name="convolution")
    run = make_run(make_count(conv, elementwise(time_s=1.0, gigabytes=9)), {"forward": 1.05})
    found = make_picture(run, judged_here()).waterfall
    assert [one.is_proof for one in found.exceeded] == [False]  # it may need less arithmetic
    assert found.is_conclusive


def test_what_no_cache_holds_proves_the_bandwidth_of_memory_wrong() -> None:
    found = judged_here(setting=Setting(payload_bytes=10**8))
    large = elementwise(time_s=0.2, gigabytes=4.0, num=4)  # 20 GB/s, 1 GB each, of 10 GB/s
    run = make_run(make_count(large, make_group(time_s=0.5)), {"forward": 0.7})
    assert make_picture(run, found).waterfall.provisional == ("memory",)

    small = replace(large, num=400)
    run = make_run(make_count(small, make_group(time_s=0.5)), {"forward": 0.7})
    assert make_picture(run, found).waterfall.provisional == ()


def test_a_number_of_threads_that_was_not_measured_is_provisional() -> None:
    found = replace(ceilings_of_here(), bench=make_bench(num_threads=8))
    run = held_by_memory()
    assert run.count is not None
    run = replace(run, count=replace(run.count, clock="wall"))
    four, eight = (replace(run, ranks=(replace(run.ranks[0], num_threads=n),)) for n in (4, 8))

    assert make_picture(eight, judge(found)).waterfall.provisional == ()
    assert set(make_picture(four, judge(found)).waterfall.provisional) == {"fp32", "bf16", "memory"}


# -- after a run


def ended_run(folder: Path, ceilings: Ceilings) -> tuple[Run, ObservedRun]:
    run = keep_run(folder)
    keep_ceilings(run, ceilings)
    measurement = held_by_memory()
    found = find_ceilings(run, measurement)
    picture = make_picture(measurement, found)
    return run, ObservedRun(
        run=run,
        measurement=measurement,
        diagnosis=diagnose(measurement, None, picture.waterfall),
        picture=picture,
        ceilings=found,
    )


def test_what_a_run_proves_is_kept_for_the_next_one(tmp_path: Path) -> None:
    run, observed = ended_run(tmp_path, judged_here())
    assert observed.ceilings is not None
    proof = Exceeded(
        name="matmul", roof="compute", ratio=2.0, fraction=0.1, ceiling="fp32", is_proof=True
    )
    note_exceeded(run, observed.ceilings, replace(observed.picture.waterfall, exceeded=(proof,)))

    found = find_ceilings(run, observed.measurement)
    assert found is not None
    assert [one.dtype for one in found.ceilings if one.is_provisional] == ["fp32"]


def test_a_record_remembers_the_state_of_the_processors(tmp_path: Path) -> None:
    from steptime.launch.origin import describe_run

    record = describe_run("id", ("true",), environment={}, started_unix_s=0.0)
    assert isinstance(record, CommandRecord)
    assert record.condition == read_condition()
