"""A step cut into parts: they sum to it, none is negative, and none holds another's time."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from steptime.app.run.describe_run import describe_run
from steptime.core.codec import from_json, to_json
from steptime.diagnose.diagnosis import diagnose
from steptime.diagnose.values.finding import BottleneckKind
from steptime.diagnose.values.reach_values import PARTS, Picture, Waterfall
from steptime.diagnose.waterfall.cut import groups_of
from steptime.diagnose.waterfall.roofs import find_roofs
from steptime.diagnose.waterfall.step_waterfall import make_picture
from steptime.machine.values.ceiling_values import BenchProcess, Ceiling, Ceilings, Point, Setting
from steptime.measure.values.machine_load import HostLoad
from steptime.measure.values.measurement import (
    Measurement,
)
from steptime.measure.values.model.work import ClassCount, Completeness, Count, GroupCount
from steptime.report.blocks.run.run_report import picture_report
from steptime.report.blocks.work.waterfall_blocks import PARTS as PART_WORDS
from steptime.report.blocks.work.waterfall_blocks import (
    describe_arithmetic,
    describe_lacking,
    describe_start,
    format_intensity,
)
from steptime.report.text.paint_text import print_report
from steptime.report.text.print_run import render
from steptime.report.words.run.run_words import describe_finding
from unit.builders import make_measurement, make_phases, make_quantity, make_rank, make_steady

G = 1e9
H100 = "NVIDIA H100 80GB HBM3"


def make_group(name: str = "matmul", *, time_s: float | None, **changes: Any) -> GroupCount:
    """10 GFLOP over 100 MB in fp32, unless told otherwise."""
    base = GroupCount(
        name=name, dtype="fp32", num=10, flops=10 * 10**9, moved_bytes=10**8, time_s=time_s
    )
    return replace(base, **changes)


def elementwise(*, time_s: float | None, gigabytes: float, **changes: Any) -> GroupCount:
    moved = int(gigabytes * G)
    return make_group(
        "elementwise", time_s=time_s, flops=0, dtype=None, moved_bytes=moved, **changes
    )


def make_count(*groups: GroupCount, recomputed: int = 0) -> Count:
    total = sum(group.flops for group in groups)
    by_dtype: dict[str, int] = {}
    classes: dict[str, ClassCount] = {}
    for group in groups:
        if group.dtype:
            by_dtype[group.dtype] = by_dtype.get(group.dtype, 0) + group.flops
        one = classes.get(group.name, ClassCount(name=group.name))
        classes[group.name] = replace(
            one,
            num=one.num + group.num,
            flops=one.flops + group.flops,
            moved_bytes=one.moved_bytes + group.moved_bytes,
            time_s=(one.time_s or 0.0) + (group.time_s or 0.0),
            device_time_s=group.device_time_s,
            by_dtype={group.dtype: group.flops} if group.dtype else {},
        )
    return Count(
        forward=total - recomputed,
        backward=0,
        recomputed=recomputed,
        macs=total // 2,
        classes=tuple(classes.values()),
        groups=groups,
        by_dtype=by_dtype,
    )


def make_ceiling(kind: str, rate: float, **changes: Any) -> Ceiling:
    unit = "flops_per_s" if kind == "matmul" else "bytes_per_s"
    quantity = make_quantity(0.9 * rate)  # the median; the fastest is the ceiling
    base = Ceiling(kind=kind, device="cpu", unit=unit, rate=quantity, best_rate=rate)
    return replace(base, **changes)


def make_ceilings(*found: Ceiling, device: str = "cpu", threads: int = 1) -> Ceilings:
    """fp32 at 100 GFLOPS, bf16 at 200, memory at 10 GB/s, caches at 50, with one thread."""
    usual = (
        make_ceiling("matmul", 100 * G, dtype="fp32"),
        make_ceiling("matmul", 200 * G, dtype="bf16"),
        make_ceiling("copy", 10 * G, variant="memory"),
        make_ceiling("copy", 50 * G, variant="cache"),
    )
    return Ceilings(
        fingerprint="0" * 16,
        measured_unix_s=1.0,
        took_s=1.0,
        budget_s=1.0,
        bench=BenchProcess(
            python="/usr/bin/python",
            python_version="3.11.7",
            torch_version="2.13.0",
            num_threads=threads,
            num_cores=threads,
            wait_policy="passive",
        ),
        ceilings=tuple(replace(one, device=device) for one in found or usual),
    )


def make_run(
    count: Count | None,
    times_s: Mapping[str, float],
    *,
    cpu_s: Mapping[str, float] | None = None,
    device_s: Mapping[str, float] | None = None,
    device: str = "cpu",
    **fields: Any,
) -> Measurement:
    phases = make_phases(times_s, cpu_s=cpu_s, device_s=device_s)
    step = make_quantity(sum(times_s.values()))
    rank = make_rank(device=device, **times_s)
    if device != "cpu":
        rank = replace(rank, device_name=H100, num_threads=16)
    return replace(
        make_measurement(),
        phases=phases,
        steady=make_steady(step),
        ranks=(rank,),
        count=count,
        **fields,
    )


def cut(run: Measurement, ceilings: Ceilings | None = None) -> Waterfall:
    return make_picture(run, ceilings or make_ceilings()).waterfall


def times_of(waterfall: Waterfall) -> dict[str, float]:
    return {part.name: part.time_s for part in waterfall.parts}


def assert_whole(waterfall: Waterfall) -> None:
    assert waterfall.step_time_s is not None
    assert math.fsum(p.time_s for p in waterfall.parts) == pytest.approx(waterfall.step_time_s)
    assert all(part.time_s >= 0 for part in waterfall.parts)
    assert [part.name for part in waterfall.parts] == sorted(times_of(waterfall), key=PARTS.index)


# -- each part by itself


def test_a_product_is_cut_by_a_chain_of_ceilings() -> None:
    # 10 GFLOP: 50 ms in bf16, 100 ms in fp32, measured 130 ms of 150 ms of forward.
    found = cut(make_run(make_count(make_group(time_s=0.13)), {"forward": 0.15}))

    assert_whole(found)
    assert times_of(found) == pytest.approx(
        {"arithmetic": 0.05, "precision": 0.05, "shape": 0.03, "launch": 0.02, "unexplained": 0}
    )
    assert (found.begins_at, found.dtype, found.is_conclusive) == ("ceiling", "bf16", True)


def test_a_peak_that_the_user_gave_for_the_cpu_is_where_the_picture_begins() -> None:
    run = make_run(make_count(make_group(time_s=0.13)), {"forward": 0.15})
    found = cut(replace(run, given_peaks={"bf16": 400 * G}))

    assert_whole(found)
    # 25 ms at the given peak, 50 ms at the measured ceiling.
    parts = times_of(found)
    assert (parts["arithmetic"], parts["ceiling"]) == pytest.approx((0.025, 0.025))
    assert found.begins_at == "given"
    fp32 = cut(replace(run, given_peaks={"fp32": 400 * G}))
    assert (fp32.begins_at, times_of(fp32)["arithmetic"]) == ("ceiling", pytest.approx(0.05))


def test_threads_that_the_run_has_not_are_a_part() -> None:
    points = [
        Point(setting=Setting(shape=(512, 512, 512), num_threads=n), rate=rate * G)
        for n, rate in ((4, 80.0), (1, 20.0))
    ]
    matmul = make_ceiling("matmul", 100 * G, dtype="fp32", points=tuple(points))
    run = make_run(make_count(make_group(time_s=0.4)), {"forward": 0.4})
    found = cut(run, make_ceilings(matmul, threads=4))

    # A quarter of the ceiling with one thread: 100 ms become 400 ms.
    assert times_of(found) == pytest.approx({"arithmetic": 0.1, "threads": 0.3, "unexplained": 0.0})


def test_elements_are_held_by_memory_and_what_is_slower_still_stands_apart() -> None:
    group = elementwise(time_s=0.25, gigabytes=2.0)  # 200 ms at 10 GB/s
    found = cut(make_run(make_count(group, make_group(time_s=0.1)), {"forward": 0.35}))

    assert_whole(found)
    assert times_of(found)["bandwidth"] == pytest.approx(0.2)
    assert times_of(found)["slow_operators"] == pytest.approx(0.05)
    assert "shape" not in times_of(found)


def test_a_product_that_memory_binds_is_arithmetic_first_and_bandwidth_beyond() -> None:
    group = make_group(time_s=0.5, moved_bytes=4 * 10**9)  # 400 ms of memory, 100 ms of fp32
    found = times_of(cut(make_run(make_count(group), {"forward": 0.5})))

    assert found["arithmetic"] + found["precision"] == pytest.approx(0.1)
    assert (found["bandwidth"], found["slow_operators"]) == pytest.approx((0.3, 0.1))


def test_tiny_operators_are_launching_but_for_what_they_must_take() -> None:
    group = elementwise(time_s=0.08, gigabytes=0.1, is_tiny=True, num=5000)  # 10 ms of memory
    found = times_of(cut(make_run(make_count(make_group(time_s=0.1), group), {"forward": 0.3})))

    assert found["launch"] == pytest.approx(0.3 - 0.1 - 0.01)
    assert found["bandwidth"] == pytest.approx(0.01)


def test_what_needs_little_and_takes_long_was_long_in_being_called() -> None:
    group = elementwise(time_s=0.08, gigabytes=0.001, num=1000)  # 0.1 µs of memory each
    found = times_of(cut(make_run(make_count(make_group(time_s=0.1), group), {"forward": 0.2})))

    assert found["launch"] == pytest.approx(0.2 - 0.1 - 0.0001)
    assert "slow_operators" not in found


def test_what_checkpointing_did_again_is_a_part() -> None:
    count = make_count(make_group(time_s=0.1), recomputed=25 * 10**8)
    found = times_of(cut(make_run(count, {"forward": 0.1})))

    assert found["recomputation"] == pytest.approx(0.025)
    assert found["arithmetic"] == pytest.approx(0.0375)


# -- what is planted in one part grows that part alone


@pytest.mark.parametrize(
    ("phase", "part"),
    [
        ("input_wait", "input"),
        ("rollout", "rollout"),
        ("process_wait", "process_wait"),
        ("h2d", "copies"),
        ("communication", "communication"),
        ("sync", "sync"),
        ("loss", "loss"),
        ("gradient_processing", "gradient_processing"),
        ("optimizer", "optimizer"),
        ("other", "script"),
        ("forward", "launch"),
        ("backward", "launch"),
    ],
)
def test_a_delay_grows_its_part_alone(phase: str, part: str) -> None:
    times_s = {
        **dict.fromkeys(("input_wait", "h2d", "communication", "sync", "loss"), 0.01),
        **dict.fromkeys(("gradient_processing", "optimizer", "other"), 0.01),
        **dict.fromkeys(("rollout", "process_wait"), 0.01),
        "forward": 0.08,
        "backward": 0.08,
    }
    count = make_count(make_group(time_s=0.12), elementwise(time_s=0.02, gigabytes=0.1))
    before = cut(make_run(count, times_s))
    after = cut(make_run(count, {**times_s, phase: times_s[phase] + 0.1}))

    assert_whole(before)
    assert_whole(after)
    grown = {name: after.time_of(name) - before.time_of(name) for name in PARTS}
    assert grown == pytest.approx({**dict.fromkeys(PARTS, 0.0), part: 0.1}, abs=1e-9)


def test_operators_between_ranks_inside_backward_are_communication() -> None:
    product, times_s = make_group(time_s=0.12), {"backward": 0.2, "communication": 0.01}
    before = cut(make_run(make_count(product), times_s))
    exchange = make_group("communication", time_s=0.05, flops=0, dtype=None)
    after = cut(make_run(make_count(product, exchange), times_s))

    assert_whole(after)
    grown = {name: after.time_of(name) - before.time_of(name) for name in PARTS}
    wanted = {**dict.fromkeys(PARTS, 0.0), "communication": 0.05, "launch": -0.05}
    assert grown == pytest.approx(wanted, abs=1e-9)


def test_more_work_of_elements_grows_bandwidth_alone() -> None:
    product = make_group(time_s=0.12)
    less = make_count(product, elementwise(time_s=0.02, gigabytes=0.2))
    more = make_count(product, elementwise(time_s=0.12, gigabytes=1.2))
    before, after = cut(make_run(less, {"forward": 0.15})), cut(make_run(more, {"forward": 0.25}))

    grown = {name: after.time_of(name) - before.time_of(name) for name in PARTS}
    assert grown == pytest.approx({**dict.fromkeys(PARTS, 0.0), "bandwidth": 0.1}, abs=1e-9)


# -- the core is not ours


def test_time_off_the_core_is_other_programs_as_far_as_they_used_the_machine() -> None:
    host = HostLoad(num_cores=4, job_cores=0.5, others_cores=3.0, num_samples=50)
    count = make_count(make_group(time_s=0.1))
    run = make_run(count, {"forward": 0.25}, cpu_s={"forward": 0.1}, host=host)

    found = replace(run, host=replace(host, num_cores=5))
    assert times_of(cut(found))["contention"] == pytest.approx(0.15)
    assert cut(found).is_conclusive
    idle = cut(replace(run, host=replace(host, others_cores=0.0)))
    assert times_of(idle)["unexplained"] == pytest.approx(0.15)
    assert (idle.is_conclusive, idle.lacking) == (False, ("waits_off_core",))
    assert cut(replace(run, host=None)).lacking == ("host_load",)


def test_of_a_count_that_is_a_lower_bound_no_waterfall_is_conclusive() -> None:
    count = replace(
        make_count(make_group(time_s=0.1)), completeness=Completeness(is_complete=False)
    )

    found = cut(make_run(count, {"forward": 0.1}))

    assert not found.is_conclusive
    assert "complete_count" in found.lacking
    assert "more arithmetic" in describe_lacking("complete_count")


def test_what_the_process_computes_is_off_its_core_in_every_phase() -> None:
    host = HostLoad(num_cores=4, job_cores=0.5, others_cores=2.5, num_samples=50)
    times_s = {"forward": 0.2, "optimizer": 0.2, "input_wait": 0.1}
    cpu_s = {"forward": 0.1, "optimizer": 0.1, "input_wait": 0.0}
    found = cut(make_run(make_count(make_group(time_s=0.1)), times_s, cpu_s=cpu_s, host=host))

    assert_whole(found)
    times = times_of(found)
    # The optimizer stands beside the products on one clock; a wait is no computing.
    assert times["optimizer"] == pytest.approx(times["arithmetic"] + times["precision"])
    assert times["contention"] == pytest.approx(0.2)
    assert times["input"] == pytest.approx(0.1)


def test_an_optimizer_that_waits_has_its_wall_time_and_beside_others_its_wait_is_named() -> None:
    times_s, cpu_s = {"forward": 0.2, "optimizer": 0.2}, {"forward": 0.1, "optimizer": 0.01}
    count = make_count(make_group(time_s=0.1))
    alone = make_run(count, {**times_s, "forward": 0.1}, cpu_s=cpu_s)
    assert times_of(cut(alone))["optimizer"] == pytest.approx(0.2)

    host = HostLoad(num_cores=2, job_cores=0.5, others_cores=1.5, num_samples=50)
    beside = cut(make_run(count, times_s, cpu_s=cpu_s, host=host))
    # At a stretch of 2 others took 10 ms of it at most, and 10 ms ran.
    assert beside.clock == "cpu"
    assert beside.waits == {"optimizer": pytest.approx(0.18)}


def test_what_few_and_tiny_operators_give_is_their_calls_and_what_they_need() -> None:
    tiny = elementwise(time_s=0.2, gigabytes=0.1, is_tiny=True, num=20_000)
    run = make_run(make_count(make_group(time_s=0.1), tiny), {"forward": 0.3})
    found = cut(run)
    gain, launch_s = found.gain_of("launch"), times_of(found)["launch"]

    assert gain is not None
    assert (gain.low_s, gain.high_s) == pytest.approx((0.5 * launch_s, 1.1 * launch_s + 0.01))
    assert found.gain_of("bandwidth") is None


def test_beside_programs_that_keep_the_machine_full_all_parts_are_cpu_time() -> None:
    host = HostLoad(num_cores=2, job_cores=0.5, others_cores=1.5, num_samples=50)
    times_s = {"forward": 0.24, "optimizer": 0.16, "input_wait": 0.1}
    cpu_s = {"forward": 0.12, "optimizer": 0.08, "input_wait": 0.0}
    run = make_run(make_count(make_group(time_s=0.1)), times_s, cpu_s=cpu_s, host=host)
    assert run.steady is not None
    run = replace(run, steady=replace(run.steady, step_cpu_s=make_quantity(0.2)))
    found = cut(run)

    assert_whole(found)
    assert (found.clock, found.step_time_s, found.wall_s) == ("cpu", pytest.approx(0.2), 0.5)
    assert times_of(found) == pytest.approx(
        {
            "arithmetic": 0.05,
            "precision": 0.05,
            "launch": 0.02,
            "optimizer": 0.08,
            "unexplained": 0.0,
        }
    )
    assert found.waits == {"input_wait": pytest.approx(0.1)}
    assert found.is_conclusive
    assert found.wall_fraction_of("optimizer") == pytest.approx(0.16)
    text = " ".join(shown(make_picture(run, make_ceilings()), run).split())
    assert "a step of 200 ms, all parts in CPU time (500 ms of wall time)" in text
    assert "not in it, for waiting takes no CPU time: input wait 100 ms" in text


def test_threads_that_the_run_has_not_take_no_cpu_time() -> None:
    points = [*sized("fp32", {512: 20}, 1), *sized("fp32", {512: 80}, 4)]
    matmul = make_ceiling("matmul", 100 * G, dtype="fp32", points=tuple(points))
    host = HostLoad(num_cores=2, job_cores=0.5, others_cores=1.5, num_samples=50)
    run = make_run(make_count(make_group(time_s=0.4)), {"forward": 0.4}, cpu_s={"forward": 0.4})
    ceilings = make_ceilings(matmul, threads=4)

    assert times_of(cut(run, ceilings))["threads"] == pytest.approx(0.3)
    beside = times_of(cut(replace(run, host=host), ceilings))
    assert beside == pytest.approx({"arithmetic": 0.4, "unexplained": 0.0})


def test_several_threads_beside_a_full_machine_have_no_clock_of_their_own() -> None:
    host = HostLoad(num_cores=2, job_cores=0.5, others_cores=1.5, num_samples=50)
    count = replace(make_count(make_group(time_s=0.1)), clock="wall")
    run = make_run(count, {"forward": 0.1}, cpu_s={"forward": 0.15}, host=host)
    found = cut(run)

    assert (found.clock, found.is_conclusive) == ("wall", False)
    assert found.lacking == ("quiet_machine",)
    assert cut(replace(run, host=replace(host, others_cores=0.0))).is_conclusive


def test_operators_by_cpu_time_of_one_of_several_threads_are_not_put_beside_wall_time() -> None:
    run = make_run(make_count(make_group(time_s=0.1)), {"forward": 0.1})
    two = replace(run, ranks=(replace(run.ranks[0], num_threads=2),))

    assert cut(two).missing == "operators_by_cpu_time"
    assert run.count is not None
    assert cut(replace(two, count=replace(run.count, clock="wall"))).missing is None


# -- what removing a cause gives


def sized(dtype: str, rates: Mapping[int, float], num_threads: int = 1) -> list[Point]:
    return [
        Point(setting=Setting(shape=(n, n, n), num_threads=num_threads), rate=rate * G)
        for n, rate in rates.items()
    ]


def test_a_shorter_type_gives_what_products_of_that_size_gain_less_the_casts() -> None:
    ceilings = make_ceilings(
        make_ceiling(
            "matmul", 100 * G, dtype="fp32", points=tuple(sized("fp32", {256: 90, 1024: 100}))
        ),
        make_ceiling(
            "matmul", 400 * G, dtype="bf16", points=tuple(sized("bf16", {256: 180, 1024: 400}))
        ),
        make_ceiling("copy", 10 * G, variant="memory"),
        make_ceiling("copy", 50 * G, variant="cache"),
    )
    work = 2 * 256**3
    small = make_group(time_s=0.1, num=300, flops=300 * work, moved_bytes=10**6)
    found = cut(make_run(make_count(small), {"forward": 0.1}), ceilings)
    gain = found.gain_of("precision")

    assert gain is not None
    # 50 ms by their own size, 75 ms by the ceilings; at least 0.6 and at most 4.6 ms of casts.
    assert gain.high_s == pytest.approx(0.075 - 0.0006, abs=1e-4)
    assert gain.low_s == pytest.approx(0.05 - 0.0045 - 0.00015, abs=1e-4)
    assert gain.low_s < times_of(found)["precision"]
    run = make_run(make_count(small), {"forward": 0.1})
    text = " ".join(shown(make_picture(run, ceilings), run).split())
    assert "removed, the step would become shorter by 45." in text
    assert " to 74.4 ms" in text


def test_the_headroom_of_arithmetic_is_no_more_than_its_interval_allows() -> None:
    run = make_run(make_count(make_group(time_s=0.1, num=1000)), {"forward": 0.1})
    found = diagnosed(run).findings[0]
    evidence = {one.name: one.value for one in found.evidence}

    assert evidence["precision"] == pytest.approx(0.5)
    assert evidence["precision_gain_low"] < evidence["precision_gain_high"] < 0.5
    assert found.headroom_speedup == pytest.approx(1 / (1 - evidence["precision_gain_high"]))


def test_threads_give_most_to_large_products_and_perhaps_nothing_to_elements() -> None:
    points = [*sized("fp32", {512: 20}, 1), *sized("fp32", {512: 80}, 4)]
    points += [*sized("fp32", {2048: 25}, 1), *sized("fp32", {2048: 100}, 4)]
    matmul = make_ceiling("matmul", 100 * G, dtype="fp32", points=tuple(points))
    group = make_group(time_s=0.4, num=37)
    run = make_run(make_count(group, elementwise(time_s=0.1, gigabytes=0.1)), {"forward": 0.5})
    gain = cut(run, make_ceilings(matmul, threads=4)).gain_of("threads")

    assert gain is not None
    assert (gain.low_s, gain.high_s) == (pytest.approx(0.3), pytest.approx(0.375))


def test_a_phase_gives_its_time_within_what_caches_make_of_it() -> None:
    times_s = {"forward": 0.1, "optimizer": 0.1}
    found = cut(make_run(make_count(make_group(time_s=0.1)), times_s)).gain_of("optimizer")

    assert found is not None
    assert (found.low_s, found.high_s) == (pytest.approx(0.09), pytest.approx(0.11))


# -- roofs that are wrong, or not there


def test_a_class_that_beats_its_roof_shows_that_the_roof_is_too_low() -> None:
    found = cut(make_run(make_count(make_group(time_s=0.05)), {"forward": 0.06}))

    assert_whole(found)
    assert [(e.name, e.roof, round(e.ratio, 2)) for e in found.exceeded] == [
        ("matmul", "compute", 2.0)
    ]
    assert (found.is_conclusive, found.lacking) == (False, ("true_ceilings",))


def test_what_is_faster_than_memory_is_no_wonder_within_the_rate_of_a_cache() -> None:
    count = make_count(make_group(time_s=0.1), elementwise(time_s=0.02, gigabytes=0.8))
    assert cut(make_run(count, {"forward": 0.12})).exceeded == ()
    count = make_count(make_group(time_s=0.1), elementwise(time_s=0.01, gigabytes=0.8))
    assert [e.roof for e in cut(make_run(count, {"forward": 0.12})).exceeded] == ["cache"]


def test_operators_that_were_slower_in_the_look_are_made_to_fit() -> None:
    found = cut(make_run(make_count(make_group(time_s=0.2)), {"forward": 0.16}))

    assert_whole(found)
    assert times_of(found)["shape"] == pytest.approx(0.06)
    assert "launch" not in times_of(found)
    scale = {term.name: term.value for term in found.parts[-1].terms}["operator_scale"]
    assert scale == pytest.approx(0.8)


def test_a_type_without_a_ceiling_stays_unexplained_and_is_named() -> None:
    found = cut(make_run(make_count(make_group(time_s=0.1, dtype="fp64")), {"forward": 0.1}))

    assert times_of(found) == pytest.approx({"unexplained": 0.1})
    assert found.lacking == ("ceiling_fp64",)
    assert describe_lacking("ceiling_fp64") == "a measured ceiling of fp64"


def test_without_ceilings_count_or_steps_there_are_no_parts_but_a_reason() -> None:
    run = make_run(make_count(make_group(time_s=0.1)), {"forward": 0.1})
    assert make_picture(run, None).waterfall.missing == "no_ceilings"
    assert make_picture(run, make_ceilings(device="cuda:0")).waterfall.missing == (
        "no_ceilings_of_device"
    )
    assert cut(replace(run, count=None, count_missing="compiled")).missing == "compiled"
    assert cut(replace(run, steady=None)).missing == "no_steady_steps"
    assert run.count is not None
    eager = replace(run.count, is_executed=False)
    assert cut(replace(run, count=eager)).missing == "not_executed"
    untimed = make_count(make_group(time_s=None))
    assert cut(replace(run, count=untimed)).missing == "no_operator_times"


def test_a_count_by_classes_alone_is_cut_as_well() -> None:
    count = replace(make_count(make_group(time_s=0.13)), groups=())
    found = cut(make_run(count, {"forward": 0.13}))
    assert times_of(found)["shape"] == pytest.approx(0.03)


# -- on a device


def test_on_a_device_the_picture_begins_at_the_datasheet() -> None:
    count = make_count(
        make_group(time_s=1.0, dtype="bf16", flops=989 * 10**11, moved_bytes=10**9),
        elementwise(time_s=1.0, gigabytes=30.0),
    )
    ceilings = make_ceilings(
        make_ceiling("matmul", 791.2e12, dtype="bf16"),
        make_ceiling("copy", 3000 * G, variant="memory"),
        device="cuda:0",
    )
    run = make_run(
        count,
        {"input_wait": 0.02, "forward": 0.1, "backward": 0.18, "optimizer": 0.01},
        device_s={"forward": 0.05, "backward": 0.1, "optimizer": 0.01},
        device="cuda",
    )
    found = cut(run, ceilings)

    assert_whole(found)
    # 100 ms at the peak, 125 ms at the ceiling, 10 ms of memory, 150 ms measured.
    assert times_of(found) == pytest.approx(
        {
            "arithmetic": 0.1,
            "ceiling": 0.025,
            "bandwidth": 0.01,
            "device_operators": 0.015,
            "launch": 0.13,
            "input": 0.02,
            "optimizer": 0.01,
            "unexplained": 0.0,
        }
    )
    assert found.begins_at == "datasheet"
    own = cut(replace(run, given_peaks={"bf16": 1978e12}), ceilings)
    assert (own.begins_at, times_of(own)["arithmetic"]) == ("given", pytest.approx(0.05))
    assert "that you gave (--peak)" in describe_start(own)
    assert "given peak 1.98 PFLOPS" in describe_arithmetic(own.parts[0])
    blind = make_run(count, {"forward": 0.1}, device="cuda")
    assert cut(blind, ceilings).missing == "no_device_times"


def test_on_a_device_a_class_has_no_position_for_its_time_is_that_of_launching() -> None:
    ceilings = make_ceilings(make_ceiling("matmul", 800e12, dtype="fp32"), device="cuda:0")
    run = make_run(
        make_count(make_group(time_s=0.1)),
        {"forward": 0.1},
        device_s={"forward": 0.1},
        device="cuda",
    )
    point = make_picture(run, ceilings).roofline.points[0]
    assert (point.time_s, point.position, point.missing) == (None, None, "no_operator_times")
    assert point.intensity == pytest.approx(100)


def on_device(*groups: GroupCount) -> Picture:
    """Of 100 ms on the host, in which the device works for 60 ms in the model."""
    ceilings = make_ceilings(
        make_ceiling("matmul", 800e12, dtype="bf16"),
        make_ceiling("copy", 3000 * G, variant="memory"),
        device="cuda:0",
    )
    run = make_run(make_count(*groups), {"forward": 0.1}, device_s={"forward": 0.06}, device="cuda")
    return make_picture(run, ceilings)


def test_times_on_the_device_tell_slow_products_elements_and_launching_apart() -> None:
    product = make_group(time_s=0.001, device_time_s=0.02, dtype="bf16", flops=8 * 10**12)
    moved = elementwise(time_s=0.001, device_time_s=0.015, gigabytes=30.0)
    small = make_group("other", time_s=0.04, device_time_s=0.01, num=1000, flops=0, dtype=None)
    picture = on_device(product, moved, small)
    found = picture.waterfall

    assert_whole(found)
    times = times_of(found)
    assert times["arithmetic"] + times["ceiling"] == pytest.approx(0.01)
    assert times["shape"] == pytest.approx(0.01)
    assert (times["bandwidth"], times["slow_operators"]) == (
        pytest.approx(0.01 + 0.1 / 3000),  # with what the small ones must move
        pytest.approx(0.005),
    )
    # 40 ms of an idle device, 15 ms between operators, and small ones that took to be started.
    assert times["launch"] == pytest.approx(0.04 + 0.015 + 0.01 - 0.1 / 3000)
    assert "device_operators" not in times
    assert [(p.name, p.time_s) for p in picture.roofline.points][:2] == [
        ("matmul", 0.02),
        ("elementwise", 0.015),
    ]
    assert [p.position for p in picture.roofline.points][:2] == pytest.approx([0.5, 2 / 3])


@pytest.mark.parametrize(("device_time_s", "is_tiny"), [(0.0199, True), (0.0201, False)])
def test_operators_below_twenty_microseconds_on_the_device_are_tiny(
    device_time_s: float, *, is_tiny: bool
) -> None:
    group = make_group(time_s=0.04, device_time_s=device_time_s, num=1000)

    (found,) = groups_of(make_count(group), is_on_device=True)

    assert (found.time_s, found.is_tiny) == (device_time_s, is_tiny)


def test_operators_that_were_slower_on_the_device_in_the_look_are_made_to_fit() -> None:
    group = make_group(time_s=0.001, device_time_s=0.12, dtype="bf16", flops=8 * 10**12)
    found = on_device(group).waterfall

    assert_whole(found)
    assert times_of(found)["shape"] == pytest.approx(0.05)
    assert times_of(found)["launch"] == pytest.approx(0.04)


def test_a_device_whose_products_beat_the_ceiling_has_a_roof_that_is_too_low() -> None:
    group = make_group(time_s=0.001, device_time_s=0.04, dtype="bf16", flops=40 * 10**12)

    (one,) = on_device(group).waterfall.exceeded
    assert (one.name, one.ratio) == ("matmul", pytest.approx(1.25))


# -- roofline


def test_each_class_stands_under_the_roof_that_binds_it() -> None:
    count = make_count(make_group(time_s=0.2), elementwise(time_s=0.4, gigabytes=2.0))
    found = make_picture(make_run(count, {"forward": 0.6}), make_ceilings()).roofline
    moved, product = found.points

    assert (moved.name, moved.roof) == ("elementwise", "memory")
    assert moved.fraction == pytest.approx(2 / 3)
    assert (moved.position, moved.headroom_s) == pytest.approx((0.5, 0.2))
    assert (product.roof, product.position) == ("compute", pytest.approx(0.5))
    assert product.roof_flops_per_s == pytest.approx(100 * G)
    bare = make_picture(make_run(count, {"forward": 0.6}), None).roofline
    assert (bare.missing, bare.roofs) == ("no_ceilings", None)
    assert bare.points[1].flops_per_s == pytest.approx(50 * G)
    assert bare.points[1].position is None


def test_a_roof_is_the_fastest_repetition_and_the_ceilings_of_another_device_are_none() -> None:
    rank = make_rank(forward=0.1)
    roofs = find_roofs(make_ceilings(), rank)
    assert not isinstance(roofs, str)
    assert roofs.flops_per_s == {"bf16": 200 * G, "fp32": 100 * G}
    assert find_roofs(make_ceilings(make_ceiling("matmul", 0.0, best_rate=None)), rank) == (
        "no_ceilings_of_device"
    )
    assert find_roofs(None, rank) == "no_ceilings"
    named = make_ceilings(device="cuda:0")
    assert named.bench is not None
    named = replace(named, bench=replace(named.bench, device_names=("NVIDIA A10",)))
    assert find_roofs(named, replace(rank, device="cuda", device_name=H100)) == (
        "no_ceilings_of_device"
    )


# -- always


@given(
    products=st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1)), max_size=4),
    moves=st.lists(st.tuples(st.floats(0, 1), st.floats(0, 3), st.booleans()), max_size=4),
    phases=st.lists(st.floats(0, 1), min_size=11, max_size=11),
    cpu=st.floats(0, 1),
    recomputed=st.floats(0, 1),
)
def test_parts_sum_to_the_step_and_none_is_negative(
    products: list[tuple[float, float, float]],
    moves: list[tuple[float, float, bool]],
    phases: list[float],
    cpu: float,
    recomputed: float,
) -> None:
    names = ("input_wait", "h2d", "forward", "loss", "forward_and_loss", "backward")
    names += ("gradient_processing", "communication", "optimizer", "sync", "other")
    groups = [
        make_group(time_s=t, flops=1 + int(w * 2e10), moved_bytes=int(b * 1e10))
        for t, w, b in products
    ]
    groups += [elementwise(time_s=t, gigabytes=b, is_tiny=tiny) for t, b, tiny in moves]
    count = make_count(*groups, make_group(time_s=0.01))
    count = replace(count, recomputed=int(recomputed * count.forward))
    times_s = {**dict(zip(names, phases, strict=True)), "forward": phases[2] + 0.01}
    run = make_run(count, times_s, cpu_s={name: cpu * t for name, t in times_s.items()})

    assert_whole(cut(run))
    full = HostLoad(num_cores=1, job_cores=0.5, others_cores=0.5, num_samples=9)
    assert_whole(cut(replace(run, host=full)))


# -- the diagnosis


def diagnosed(run: Measurement) -> Any:
    return diagnose(run, None, cut(run))


def test_a_step_that_memory_holds_is_memory_bandwidth_bound() -> None:
    count = make_count(make_group(time_s=0.1), elementwise(time_s=0.5, gigabytes=4.5))
    run = make_run(count, {"forward": 0.61})

    assert diagnose(run).kind is BottleneckKind.COMPUTE_BOUND
    found = diagnosed(run)
    assert found.kind is BottleneckKind.MEMORY_BANDWIDTH_BOUND
    assert BottleneckKind.COMPUTE_BOUND not in [finding.kind for finding in found.findings]
    said = describe_finding(found.findings[0], 1.0)
    assert "operators that wait for memory take 82.0 % of a step" in said
    assert "and arithmetic takes 16.4 %." in said
    assert "If no operator had to wait for memory, a step would take at least" in said


def test_a_step_that_goes_by_between_operators_is_host_bound() -> None:
    run = make_run(make_count(make_group(time_s=0.1)), {"forward": 0.5})
    found = diagnosed(run)
    assert (found.kind, found.findings[0].cause) == (BottleneckKind.HOST_BOUND, "overhead")
    said = describe_finding(found.findings[0], 0.5)
    assert "80.0 % of a step passes between operators, in Python and in starting them." in said
    assert "If no time passed between operators, a step would take at least 100 ms: " in said


def test_arithmetic_that_fills_a_step_stays_compute_bound_and_says_how_well_it_is_done() -> None:
    run = make_run(make_count(make_group(time_s=0.13)), {"forward": 0.13})
    found = diagnosed(run)
    evidence = {one.name: one.value for one in found.findings[0].evidence}

    assert found.kind is BottleneckKind.COMPUTE_BOUND
    assert evidence["at_ceiling"] == pytest.approx(0.05 / 0.13)
    assert found.findings[0].headroom_speedup == pytest.approx(0.13 / 0.05)
    assert (
        "With the arithmetic in bf16 and in shapes that reach the machine's ceiling, a step would "
        "take at least 50.0 ms: at most 2.60x faster."
    ) in describe_finding(found.findings[0], 0.13)


def test_arithmetic_that_is_done_as_well_as_can_be_has_no_headroom() -> None:
    run = make_run(make_count(make_group(time_s=0.05, dtype="bf16")), {"forward": 0.05})
    found = diagnosed(run).findings[0]

    assert found.kind is BottleneckKind.COMPUTE_BOUND
    assert found.headroom_speedup is None
    assert "a step would take" not in describe_finding(found, 0.05)


def test_a_picture_with_a_hole_changes_no_verdict() -> None:
    unknown = make_group(time_s=0.1, dtype="fp64")
    run = make_run(make_count(unknown, elementwise(time_s=0.4, gigabytes=4)), {"forward": 0.5})
    assert diagnosed(run) == diagnose(run)


# -- words


def shown(picture: Picture, run: Measurement) -> str:
    file = io.StringIO()
    report = picture_report(describe_run(run, None, picture))
    print_report(report, console=Console(file=file, width=100))
    return file.getvalue()


def test_every_part_has_a_name_and_is_shown_with_its_arithmetic() -> None:
    assert set(PART_WORDS) == set(PARTS)
    run = make_run(make_count(make_group(time_s=0.13)), {"forward": 0.15, "optimizer": 0.01})
    text = " ".join(shown(make_picture(run, make_ceilings()), run).split())

    assert "a step of 160 ms, all parts in wall time; from the measured ceiling of matmul" in text
    assert "work ÷ ceiling: work 10.0 GFLOP, ceiling bf16 200 GFLOPS" in text
    assert "unexplained" in text
    assert "matmul compute 130 ms 100.0 % 100 76.9 GFLOPS 76.9 %" in text


@pytest.mark.parametrize(
    ("flop_a_byte", "text"),
    [(0.08139, "0.0814"), (42.16, "42.2"), (999.6, "1,000"), (8e4, "80,000")],
)
def test_an_intensity_has_no_exponent(flop_a_byte: float, text: str) -> None:
    assert format_intensity(flop_a_byte) == text


def test_without_ceilings_the_picture_and_the_report_say_how_to_get_it() -> None:
    run = make_run(make_count(make_group(time_s=0.13)), {"forward": 0.15})
    picture = make_picture(run, None)
    assert "measure it:" in shown(picture, run)
    file = io.StringIO()
    render(describe_run(run, None, picture), console=Console(file=file, width=100))
    assert "`steptime machine` measures" in file.getvalue()


def test_an_inconclusive_picture_says_what_it_lacks() -> None:
    run = make_run(make_count(make_group(time_s=0.05)), {"forward": 0.06})
    text = " ".join(shown(make_picture(run, make_ceilings()), run).split())
    assert "exceeded matmul ran at 2.00x the compute roof" in text
    assert "INCONCLUSIVE" in text
    assert "ceilings measured on a quiet machine" in text


def test_it_survives_json() -> None:
    run = make_run(make_count(make_group(time_s=0.05)), {"forward": 0.06})
    picture = make_picture(run, make_ceilings())
    assert from_json(Picture, to_json(picture)) == picture
