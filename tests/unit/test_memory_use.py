"""Memory, collections of garbage and our own looks: what a rank tells of its steady window."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steptime.measure.fold.run_fold import measure
from steptime.measure.values.measurement import Measurement
from steptime.measure.values.observations import GcPauses, MemoryUse
from unit.builders import (
    BUCKETS,
    COUNTS,
    MS,
    Line,
    by_count,
    make_block,
    make_head,
    make_memory,
    make_update,
    measure_lines,
    read,
)

GIB = 1024**3
MODEL = {"forward": 4.0, "backward": 6.0}


def updates(num: int, **fields: Any) -> list[Line]:
    """Steps of 10 ms; step k ends at (k + 1) × 10 ms."""
    return [make_update(n, MODEL, **fields) for n in range(num)]


def host_memory(measurement: Measurement) -> MemoryUse:
    found = measurement.ranks[0].host_memory
    assert found is not None
    return found


# -- memory


def test_memory_that_grows_with_the_steps_has_their_slope() -> None:
    samples = [make_memory(20 + 10 * n, GIB + 500 * n) for n in range(40)]

    found = host_memory(measure_lines(*updates(60), *samples))

    assert (found.first_bytes, found.last_bytes) == (GIB, GIB + 500 * 39)
    assert (found.peak_bytes, found.num_samples) == (GIB + 500 * 39, 40)
    assert found.slope_bytes_per_step is not None
    assert found.slope_bytes_per_step.estimate == pytest.approx(500)
    assert found.slope_bytes_per_step.low == pytest.approx(500)
    assert found.slope_bytes_per_step.n == 40


def test_memory_that_fills_once_has_no_slope() -> None:
    sizes = [GIB + 500_000 * min(n, 14) + 30 * n for n in range(40)]
    samples = [make_memory(20 + 10 * n, size) for n, size in enumerate(sizes)]

    slope = host_memory(measure_lines(*updates(60), *samples)).slope_bytes_per_step

    assert slope is not None
    assert slope.estimate == pytest.approx(30)


def test_memory_that_goes_up_and_down_by_blocks_has_no_certain_slope() -> None:
    sizes = [720, 738, 691, 716, 706, 715, 730, 720, 697, 802, 720, 793, 769, 793, *[817] * 12]
    sizes += [815, 818, *[819] * 5, *[843] * 8, 794, 794, 819, 819, 794, 819, *[843] * 3]
    sizes += [*[819] * 4, 868, 794, 843, 841, 794, 843, *[868] * 12, 880, 831, *[855] * 8]
    samples = [make_memory(20 + 10 * n, size * 1024**2) for n, size in enumerate(sizes)]

    slope = host_memory(measure_lines(*updates(100), *samples)).slope_bytes_per_step

    assert slope is not None
    assert slope.low <= 0 < slope.estimate


def test_several_samples_may_fall_into_one_step() -> None:
    lines = [make_update(n, {"forward": 1000.0}) for n in range(12)]
    lines = [
        {"k": "u", "rows": [[n, 0, 0, n * 1000 * MS, (n + 1) * 1000 * MS, *row["rows"][0][5:]]]}
        for n, row in enumerate(lines)
    ]
    samples = [make_memory(1000 + 200 * n, GIB + 100 * n) for n in range(50)]

    slope = host_memory(measure_lines(*lines, *samples)).slope_bytes_per_step

    assert slope is not None
    assert slope.estimate == pytest.approx(500)


def test_few_samples_have_no_slope() -> None:
    found = host_memory(measure_lines(*updates(60), *[make_memory(30 + n, n) for n in range(7)]))

    assert (found.num_samples, found.slope_bytes_per_step) == (7, None)


def test_first_is_of_the_window_last_and_peak_are_of_the_run() -> None:
    evaluation = BUCKETS.index("evaluation")
    samples = [
        make_memory(1, 9 * GIB),
        make_memory(100, 7 * GIB, bucket=evaluation),
        make_memory(200, 2 * GIB, bucket=len(BUCKETS) + 1),
        make_memory(300, 3 * GIB),
        make_memory(900, 4 * GIB),
    ]

    found = host_memory(measure_lines(*updates(60), *samples))

    assert (found.first_bytes, found.last_bytes, found.num_samples) == (2 * GIB, 4 * GIB, 5)
    assert found.peak_bytes == 9 * GIB


def test_samples_outside_the_window_and_inside_spans_have_no_part_in_the_slope() -> None:
    evaluation = BUCKETS.index("evaluation")
    samples = [make_memory(20 + 10 * n, GIB + 500 * n) for n in range(40)]
    others = [make_memory(21 + 10 * n, 9 * GIB, bucket=evaluation) for n in range(40)]
    later = [make_memory(900 + n, 5 * GIB) for n in range(40)]

    slope = host_memory(measure_lines(*updates(60), *samples, *others, *later)).slope_bytes_per_step

    assert slope is not None
    assert (slope.n, slope.estimate) == (40, pytest.approx(500))


def test_a_run_that_ends_before_its_window_still_tells_its_memory() -> None:
    found = host_memory(measure_lines(make_update(0), make_memory(5, GIB), make_memory(7, 3 * GIB)))

    assert (found.first_bytes, found.last_bytes, found.peak_bytes) == (GIB, 3 * GIB, 3 * GIB)
    assert found.num_samples == 2
    assert found.slope_bytes_per_step is None


@pytest.mark.parametrize(
    ("machine", "limit"),
    [
        ({"memory_bytes": 8 * GIB}, 8 * GIB),
        ({"memory_bytes": 8 * GIB, "memory_limit_bytes": 2 * GIB}, 2 * GIB),
        ({"memory_bytes": None, "memory_limit_bytes": None}, None),
    ],
)
def test_the_limit_of_the_host_is_the_machines_memory_or_the_groups_share(
    machine: dict[str, int | None], limit: int | None
) -> None:
    whole = {"hostname_hash": "abc", "cpu": None, "num_cores": 2, **machine}
    files = {"rank-0.jsonl": [make_head(), *updates(20), make_memory(50, GIB, allocated=7)]}

    (rank,) = measure(read(files, machine=whole)).ranks

    assert rank.host_memory is not None
    assert rank.device_memory is not None
    assert (rank.host_memory.limit_bytes, rank.device_memory.limit_bytes) == (limit, None)


def test_without_samples_memory_is_unknown() -> None:
    (rank,) = measure_lines(*updates(20)).ranks

    assert (rank.host_memory, rank.device_memory) == (None, None)


def test_memory_of_a_device_has_its_own_peak_and_no_faults() -> None:
    samples = [
        make_memory(20 + 10 * n, None, allocated=GIB + 64 * n, reserved=3 * GIB, peak=2 * GIB,
                    minflt=n)
        for n in range(20)
    ]  # fmt: skip

    (rank,) = measure_lines(*updates(40), *samples).ranks

    assert rank.host_memory is None
    assert rank.device_memory is not None
    assert rank.device_memory.peak_bytes == 2 * GIB
    assert rank.device_memory.last_bytes == GIB + 64 * 19
    assert rank.device_memory.slope_bytes_per_step is not None
    assert rank.device_memory.slope_bytes_per_step.estimate == pytest.approx(64)
    assert rank.device_memory.minor_faults_per_step is None


def counters(after_ms: float, faults: int, system_ms: float) -> Line:
    return make_memory(
        after_ms, GIB, minflt=faults, majflt=faults // 100, stime_ns=round(system_ms * MS)
    )


def test_faults_and_system_time_are_given_a_step() -> None:
    samples = [counters(10, 5000, 90), counters(50, 6000, 100), counters(150, 8000, 130)]

    found = host_memory(measure_lines(*updates(20), *samples))

    # From the end of the first step on: 14 steps.
    assert found.minor_faults_per_step == pytest.approx(3000 / 14)
    assert found.major_faults_per_step == pytest.approx(30 / 14)
    assert found.system_cpu_s_per_step == pytest.approx(0.040 / 14)


def test_what_a_checkpoint_faulted_in_is_not_the_steps() -> None:
    lines = updates(40)
    for n in range(20, 40):  # the twentieth step holds a checkpoint of a second
        (row,) = lines[n]["rows"]
        row[3 if n > 20 else 4] += 1000 * MS
        row[4] += 1000 * MS if n > 20 else 0
    lines[20]["rows"][0][7 + BUCKETS.index("checkpoint")] = 1000 * MS
    samples = [counters(100, 0, 0), counters(200, 100, 0), counters(1250, 90_000, 500),
               counters(1350, 90_100, 500)]  # fmt: skip

    found = host_memory(measure_lines(*lines, *samples))

    assert found.minor_faults_per_step == pytest.approx(10)
    assert found.system_cpu_s_per_step == 0


def test_one_sample_has_no_rate() -> None:
    found = host_memory(measure_lines(*updates(20), counters(50, 9, 9)))

    assert found.minor_faults_per_step is None
    assert found.system_cpu_s_per_step is None


def test_a_counter_the_machine_does_not_keep_is_absent() -> None:
    samples = [make_memory(t, GIB, minflt=t) for t in (30, 80)]

    found = host_memory(measure_lines(*updates(20), *samples))

    assert found.minor_faults_per_step == pytest.approx(10)
    assert (found.major_faults_per_step, found.system_cpu_s_per_step) == (None, None)


def test_blocks_count_as_the_steps_they_hold() -> None:
    samples = [make_memory(1000 + 50 * n, GIB + 500 * n, minflt=25 * n) for n in range(20)]

    found = host_memory(measure_lines(*updates(20), make_block(20, 100), make_block(120, 100),
                                      *samples))  # fmt: skip

    assert found.slope_bytes_per_step is not None
    assert found.slope_bytes_per_step.estimate == pytest.approx(100)
    assert found.minor_faults_per_step == pytest.approx(5)


memories = st.lists(st.tuples(st.integers(0, 900), st.integers(0, 10**9)), min_size=1, max_size=20)


@given(samples=memories, data=st.data())
@settings(max_examples=20)
def test_the_order_of_samples_in_the_file_does_not_matter(
    samples: list[tuple[int, int]], data: st.DataObject
) -> None:
    lines = [make_memory(t, rss, minflt=rss) for t, rss in dict(samples).items()]
    mixed = data.draw(st.permutations(lines))

    assert measure_lines(*updates(60), *lines) == measure_lines(*updates(60), *mixed)


# -- collections of garbage


def test_collections_are_given_a_step() -> None:
    counts = by_count(backwards=1, batches=1, gc_pauses=2, gc_ns=3 * MS)

    (rank,) = measure_lines(*updates(20, x=counts)).ranks

    assert rank.gc is not None
    assert rank.gc.pauses_per_step == 2
    assert rank.gc.s_per_step == pytest.approx(0.003)
    assert rank.gc.fraction == pytest.approx(0.3)


def test_collections_of_an_evaluation_are_not_the_steps() -> None:
    lines = updates(20)
    lines[5] = make_update(5, {**MODEL, "evaluation": 50}, x=by_count(gc_pauses=9, gc_ns=40 * MS))

    assert measure_lines(*lines).ranks[0].gc == GcPauses(
        pauses_per_step=0, s_per_step=0, fraction=0
    )


def test_collections_in_blocks_count() -> None:
    block = make_block(20, 100, counts={"gc_pauses": 300, "gc_ns": 120 * MS})

    (rank,) = measure_lines(make_update(0), block).ranks

    assert rank.gc is not None
    assert rank.gc.pauses_per_step == 3
    assert rank.gc.fraction == pytest.approx(0.12)


OLD_COUNTS = COUNTS[:5]


def test_a_guest_of_before_that_did_not_count_says_nothing_of_it() -> None:
    lines = updates(20, x=[1, 0, 0, 1, 1])

    measurement = measure_lines(*lines, counts=list(OLD_COUNTS))

    assert measurement.ranks[0].gc is None
    assert measurement.prepare_fraction is None
    assert measurement.num_steps == 20


def test_a_window_without_steps_has_no_collections() -> None:
    assert measure_lines(make_update(0)).ranks[0].gc is None


# -- preparing a batch


def test_preparing_is_a_share_of_the_window() -> None:
    counts = by_count(backwards=1, batches=1, prepare_ns=2 * MS)

    measurement = measure_lines(*[make_update(n, {**MODEL, "other": 10}, x=counts)
                                  for n in range(20)])  # fmt: skip

    assert measurement.prepare_fraction == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("times_ms", "batches"), [({"forward": 5.0}, 0), ({"other": 5.0}, 1), ({}, 1)]
)
def test_without_a_loader_or_a_model_preparing_is_unknown(
    times_ms: dict[str, float], batches: int
) -> None:
    lines = [make_update(n, times_ms, x=by_count(batches=batches)) for n in range(9)]

    assert measure_lines(*lines).prepare_fraction is None


# -- our own looks


def test_a_step_we_looked_at_does_not_count_and_cuts_nothing_off() -> None:
    lines = updates(40)
    lines[3] = make_update(3, {"forward": 90}, is_detailed=2)
    lines[9] = make_update(9, {"forward": 90}, is_detailed=2)

    measurement = measure_lines(*lines)

    assert measurement.steady is not None
    assert (measurement.steady.first_step, measurement.steady.num_steps) == (1, 37)
    assert measurement.steady.step_time_s is not None
    assert measurement.steady.step_time_s.high == pytest.approx(0.010)
    assert measurement.num_steps == 40
