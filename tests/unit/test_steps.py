"""Updates to steps, steps to a steady window, windows to phases, all of it to a Measurement."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steptime.core.codec import from_json, to_json
from steptime.core.note import Note
from steptime.core.process_end import ProcessEnd, RunState
from steptime.measure.fold.rank_fold import select_ranks
from steptime.measure.fold.run_fold import measure
from steptime.measure.steps.steady_window import StepTimes, choose_first_step, steady_window
from steptime.measure.steps.step_fold import RankSteps
from steptime.measure.values.measurement import INNER_PHASES, PHASES, Measurement, Phase
from unit.builders import (
    BUCKETS,
    COUNTS,
    MS,
    Line,
    by_bucket,
    by_count,
    make_block,
    make_device,
    make_end,
    make_head,
    make_update,
    measure_lines,
    read,
)


def fold(*lines: Line, **head: Any) -> RankSteps:
    (rank,) = select_ranks(read({"rank-0.jsonl": [make_head(**head), *lines]}))
    return rank


def updates_of(*optimizers: int, **fields: Any) -> list[Line]:
    return [make_update(n, o=o, **fields) for n, o in enumerate(optimizers)]


def phase(measurement: Measurement, name: str) -> Phase:
    return next(phase for phase in measurement.phases if phase.name == name)


def note(measurement: Measurement, code: str) -> Note | None:
    return next((note for note in measurement.notes if note.code == code), None)


# -- rounds


@pytest.mark.parametrize(
    ("optimizers", "rounds"),
    [
        ((0, 0, 0), [(0,), (0,), (0,)]),
        ((0, 1, 0, 1), [(0, 1), (0, 1)]),
        ((0, 0, 0, 1, 0, 0, 0, 1), [(0,), (0,), (0, 1), (0,), (0,), (0, 1)]),
        ((0, 1, 2, 1, 0), [(0, 1, 2), (1, 0)]),
    ],
    ids=["one optimizer", "GAN", "three critic updates", "other order"],
)
def test_a_step_is_one_round_of_optimizers(
    optimizers: tuple[int, ...], rounds: list[tuple[int, ...]]
) -> None:
    assert [step.optimizers for step in fold(*updates_of(*optimizers)).steps] == rounds


def test_a_step_sums_its_updates() -> None:
    counts = by_count(batches=1, copies=2, syncs=3, forwards=1, backwards=4)
    first = make_update(0, {"forward": 2, "fetch": 1, "evaluation": 5}, o=0, sk=1, x=counts)
    second = make_update(1, {"forward": 3, "other": 4}, o=1, sk=-1, x=counts)

    (step,) = fold(first, second).steps

    assert step.wall_s["forward"] == pytest.approx(0.005)
    assert step.step_time_s == pytest.approx(0.010)
    assert step.step_cpu_s == pytest.approx(0.010)
    assert step.spans_s["evaluation"] == pytest.approx(0.005)
    assert (step.num_updates, step.num_skipped, step.count("backwards")) == (2, 1, 8)
    assert [step.count(name) for name in ("batches", "copies", "syncs")] == [2, 4, 6]
    assert step.is_first


def test_time_in_a_bucket_of_a_newer_guest_is_other() -> None:
    update = make_update(0, w=[*by_bucket({"forward": 1}), 7 * MS])

    (step,) = fold(update, buckets=[*BUCKETS, "prefetch"]).steps

    assert step.wall_s["other"] == pytest.approx(0.007)


def test_device_times_find_their_update() -> None:
    times_ms = {"forward": 4.0, "compile": 9.0}
    lines = [*updates_of(0, 0), make_device(1, times_ms), make_device(77, times_ms)]

    first, second = fold(*lines, device="cuda").steps

    assert first.device_s is None
    assert second.device_s is not None
    assert sum(second.device_s.values()) == pytest.approx(0.004)


def test_a_step_is_detailed_if_all_its_updates_are() -> None:
    first = make_update(0, o=0), make_update(1, o=1)
    second = make_update(2, o=0), make_update(3, o=1, is_detailed=0)

    assert [step.is_detailed for step in fold(*first, *second).steps] == [True, False]


def test_a_line_written_twice_counts_once() -> None:
    assert fold(*updates_of(0, 0), make_update(1)).num_updates == 2


def test_the_thread_that_stepped_most_is_the_stream() -> None:
    lines = [make_update(n, th=int(n % 3 > 0)) for n in range(6)]

    rank = fold(*lines, make_end(6))

    assert (rank.num_steps, rank.num_updates, rank.num_threads_stepped) == (4, 4, 2)


def test_blocks_go_on_where_the_updates_end() -> None:
    rank = fold(*updates_of(0, 0), make_block(52, 20, th=1), make_block(22, 30), make_block(2, 20))

    assert [block.first_index for block in rank.blocks] == [2, 22]
    assert (rank.num_steps, rank.num_updates, rank.num_backwards) == (52, 52, 52)


def test_the_guests_own_counts_hold_where_lines_were_lost() -> None:
    rank = fold(*updates_of(0, 0), make_end(5, backwards=11))

    assert (rank.num_steps, rank.num_updates, rank.num_backwards) == (2, 5, 11)


streams = st.lists(
    st.tuples(
        st.integers(0, 2),  # thread
        st.integers(0, 2),  # optimizer
        st.lists(st.integers(0, 50), min_size=len(BUCKETS), max_size=len(BUCKETS)),
    ),
    min_size=1,
    max_size=12,
)


def lines_of(stream: list[tuple[int, int, list[int]]]) -> list[Line]:
    return [
        make_update(n, th=thread, o=optimizer, w=wall, c=wall)
        for n, (thread, optimizer, wall) in enumerate(stream)
    ]


@given(ranks=st.lists(streams, min_size=1, max_size=3), data=st.data())
@settings(max_examples=20)
def test_any_interleaving_of_lines_and_files_folds_to_the_same_steps(
    ranks: list[list[tuple[int, int, list[int]]]], data: st.DataObject
) -> None:
    ordered = {
        f"rank-{i}.jsonl": [make_head(rank=i, pid=i), *lines_of(stream)]
        for i, stream in enumerate(ranks)
    }
    # Lines of one thread stay in order; those of several may be written in any.
    mixed = {}
    for name, (head, *lines) in ordered.items():
        shuffled = data.draw(st.permutations(lines))
        mixed[f"{name[:-6]}-9.jsonl"] = [head, *shuffled]
    names = data.draw(st.permutations(list(mixed)))

    assert select_ranks(read(dict(ordered))) == select_ranks(read({n: mixed[n] for n in names}))


@given(stream=streams)
@settings(max_examples=20)
def test_folding_keeps_all_time_of_a_thread(stream: list[tuple[int, int, list[int]]]) -> None:
    rank = fold(*lines_of([(0, optimizer, wall) for _, optimizer, wall in stream]))

    folded_s = sum(step.step_time_s + sum(step.spans_s.values()) for step in rank.steps)
    assert folded_s == pytest.approx(sum(sum(wall) for _, _, wall in stream) * 1e-9)
    assert sum(step.num_updates for step in rank.steps) == len(stream)


# -- the steady window


def make_series(times_s: Sequence[float], *disturbed: int) -> StepTimes:
    return StepTimes(
        times_s=tuple(times_s),
        cpu_times_s=tuple(times_s),
        restarts=frozenset({0, *disturbed}),
        disturbed=frozenset({0, *disturbed}),
    )


def test_the_first_step_never_counts() -> None:
    assert choose_first_step(make_series([1.0] * 30), period=1) == 1


def test_nothing_counts_before_an_early_compile() -> None:
    assert choose_first_step(make_series([1.0] * 100, 1, 30), period=1) == 31


def test_a_late_compile_is_left_out_alone() -> None:
    steady = steady_window(make_series([1.0] * 100, 1, 70), period=1)

    assert (steady.first_step, steady.num_warmup_steps, steady.num_steps) == (2, 2, 97)


def test_slow_first_steps_are_cut_off_by_the_rule() -> None:
    steady = steady_window(make_series([9.0] * 8 + [1.0] * 92), period=1)

    assert steady.first_step == 11
    assert steady.step_time_s is not None
    assert (steady.step_time_s.low, steady.step_time_s.high) == (1.0, 1.0)
    assert "MSER-5" in steady.rule


def test_the_window_begins_at_a_whole_period() -> None:
    times_s = [1.0, 1.0, 1.0, 7.0] * 30

    assert choose_first_step(make_series(times_s), period=4) == 4
    assert choose_first_step(make_series(times_s, 5), period=4) == 8


def test_a_period_that_did_not_count_at_all_is_passed_over() -> None:
    assert choose_first_step(make_series([1.0] * 8, 4, 5), period=2) == 2


def test_a_run_of_one_step_has_an_empty_window() -> None:
    steady = steady_window(make_series([1.0]), period=None)

    assert (steady.num_steps, steady.num_warmup_steps, steady.step_time_s) == (0, 1, None)


def test_steps_of_blocks_count() -> None:
    lines = [*updates_of(*[0] * 30), make_block(30, 100), make_block(130, 100, round_ms=12)]

    measurement = measure_lines(*lines)

    assert measurement.steady is not None
    assert measurement.steady.num_steps == 229
    assert phase(measurement, "forward").median_s == pytest.approx(0.010)
    assert phase(measurement, "forward").fraction == 1.0


def test_a_block_that_compiles_does_not_count() -> None:
    late = make_block(130, 50, times_ms={"forward": 500, "compile": 3000})
    lines = [*updates_of(*[0] * 30), make_block(30, 100), late]

    measurement = measure_lines(*lines)

    assert measurement.steady is not None
    assert measurement.steady.num_steps == 129
    assert measurement.spans[0].total_s == pytest.approx(3.0)


def test_a_window_may_begin_inside_the_blocks() -> None:
    host = [{"k": "head", "schema": 1, "num_cores": 2}]
    load = {"dt_s": 1.0, "busy_cores": 1.0, "job_cores": 1.0}
    host += [{"k": "h", "t_unix_s": 1000.0 + second, **load} for second in range(1, 8)]
    compiles = make_update(9, {"forward": 10, "compile": 5})
    slow = {**make_block(10, 100), "rw": [90_000] * 50 + [10_000] * 50}
    lines = [*updates_of(*[0] * 9), compiles, slow, make_block(110, 400)]
    files = {"rank-0.jsonl": [make_head(), *lines], "host.jsonl": host}

    measurement = measure(read(dict(files)))

    assert measurement.steady is not None
    assert measurement.steady.first_step == 60
    assert measurement.steady.num_steps == 450
    assert phase(measurement, "forward").fraction == 1.0
    assert measurement.host is not None


def test_steps_of_a_block_that_a_probe_made_longer_do_not_count() -> None:
    probed = {**make_block(110, 100), "rw": [10_000] * 98 + [90_000] * 2, "rd": [98, 99]}
    blocks = [make_block(10, 100), probed, make_block(210, 100)]

    measurement = measure_lines(*updates_of(*[0] * 10), *blocks)

    assert measurement.steady is not None
    assert measurement.steady.num_steps == 307
    assert measurement.steady.step_time_s is not None
    assert measurement.steady.mean_s == pytest.approx(0.01)


# -- phases


def steady_updates(times_ms: dict[str, float], *, num: int = 20, **fields: Any) -> list[Line]:
    return [make_update(n, times_ms, **fields) for n in range(num)]


def test_input_wait_holds_fetch_and_collate() -> None:
    measurement = measure_lines(
        *steady_updates({"input_wait": 1, "fetch": 5, "collate": 2, "forward": 8})
    )

    assert phase(measurement, "input_wait").median_s == pytest.approx(0.008)
    assert phase(measurement, "input_wait").fraction == pytest.approx(0.5)
    assert phase(measurement, "fetch").fraction == pytest.approx(5 / 16)
    assert phase(measurement, "collate").cpu_median_s == pytest.approx(0.002)


def test_the_mean_of_each_phase_is_that_of_its_share_and_all_of_them_make_the_step() -> None:
    """A phase in every fifth step has a median of 0, and a fifth of its time in the mean step."""
    lines = [
        make_update(n, {"forward": 8, "optimizer": 0 if n % 5 else 20, "fetch": 1})
        for n in range(41)
    ]
    measurement = measure_lines(*lines)
    seen = [p for p in measurement.phases if p.mean_s is not None]
    of_step_s = [p.mean_s / p.fraction for p in seen if p.fraction and p.mean_s]

    assert phase(measurement, "optimizer").median_s == 0
    assert phase(measurement, "optimizer").mean_s == pytest.approx(0.004, rel=0.1)
    assert of_step_s == pytest.approx([of_step_s[0]] * len(of_step_s))
    outer = [p.mean_s or 0.0 for p in seen if p.name in PHASES]
    assert sum(outer) == pytest.approx(of_step_s[0])


def test_a_single_long_step_makes_no_phase_longer_than_the_mean_step() -> None:
    times = [8] * 40
    times[20] = 800  # others held the cores
    measurement = measure_lines(*(make_update(n, {"forward": ms}) for n, ms in enumerate(times)))

    assert measurement.steady is not None
    assert phase(measurement, "forward").mean_s == pytest.approx(measurement.steady.mean_s)


def test_what_comes_after_the_last_update_is_a_span_of_no_step() -> None:
    tail = by_bucket({"evaluation": 700, "other": 5})

    measurement = measure_lines(*steady_updates({"forward": 8}), make_end(20, tail=tail))
    without = measure_lines(*steady_updates({"forward": 8}), make_end(20, tail=[1, 2]))

    assert [(s.name, s.total_s, s.num_steps_touched) for s in measurement.spans] == [
        ("evaluation", pytest.approx(0.7), 0)
    ]
    assert without.spans == ()


@pytest.mark.parametrize(
    ("name", "outside_s"), [("evaluation", 0.31 + 0.51), ("epoch_start", 0.5 + 0.51)]
)
def test_what_is_longer_before_or_after_the_loop_than_in_it_is_outside(
    name: str, outside_s: float
) -> None:
    lines = [make_update(n, {"forward": 8, name: 10 * n or 500}) for n in range(20)]
    found = measure_lines(*lines, make_end(20, tail=by_bucket({name: 700}))).spans[0]

    assert found.outside_s == pytest.approx(outside_s)
    assert found.total_s == pytest.approx(1.9 + 0.5 + 0.7)
    assert measure_lines(*lines[1:], make_end(20)).spans[0].outside_s < 0.02


def test_spans_are_kept_apart_from_the_step() -> None:
    lines = steady_updates({"forward": 8})
    lines[3] = make_update(3, {"forward": 8, "evaluation": 400})
    lines[9] = make_update(9, {"forward": 8, "evaluation": 100, "checkpoint": 7})

    measurement = measure_lines(*lines)

    assert [(s.name, round(s.total_s, 3), s.num_steps_touched) for s in measurement.spans] == [
        ("evaluation", 0.5, 2),
        ("checkpoint", 0.007, 1),
    ]
    assert phase(measurement, "forward").fraction == 1.0


@given(
    st.lists(
        st.lists(st.integers(0, 9), min_size=15, max_size=15).filter(any), min_size=2, max_size=30
    ),
    st.sampled_from(["cpu", "cuda"]),
    st.integers(0, 1),
)
@settings(max_examples=30)
def test_fractions_sum_to_one_and_medians_of_one_step_to_its_time(
    rows: list[list[int]], device: str, batches: int
) -> None:
    lines = [
        make_update(n, w=[v * MS for v in row] + [0] * 4, x=by_count(batches=batches))
        for n, row in enumerate(rows)
    ]

    measurement = measure_lines(*lines, device=device)

    outer = [p for p in measurement.phases if p.name in PHASES and p.median_s is not None]
    assert sum(p.fraction or 0 for p in outer) == pytest.approx(1)
    if measurement.steady is not None and measurement.steady.num_steps == 1:
        assert measurement.steady.step_time_s is not None
        assert sum(p.median_s or 0 for p in outer) == pytest.approx(
            measurement.steady.step_time_s.estimate
        )


COMMON = {"forward": 5.0, "backward": 10.0, "optimizer": 1.0}


def missing_of(times_ms: dict[str, float], **head: Any) -> dict[str, str | None]:
    measurement = measure_lines(*steady_updates(times_ms), **head)
    return {p.name: p.missing for p in measurement.phases if p.median_s is None}


def test_what_a_cpu_cannot_show_is_not_applicable() -> None:
    found = missing_of(COMMON | {"input_wait": 1})

    assert found == {
        "h2d": "not_applicable_on_cpu",
        "sync": "not_applicable_on_cpu",
        "loss": "inside_forward",
        "forward_and_loss": "not_compiled_together",
        "communication": "single_rank",
        "rollout": "no_rollout_seen",
        "process_wait": "no_process_wait_seen",
        "fetch": "not_split",
        "collate": "not_split",
    }


def test_on_a_device_copies_and_stalls_are_observed_zeros() -> None:
    found = missing_of(COMMON, device="cuda")

    assert "h2d" not in found
    assert "sync" not in found


def test_gradient_processing_of_zero_is_observed() -> None:
    measurement = measure_lines(*steady_updates(COMMON))

    assert phase(measurement, "gradient_processing").median_s == 0.0
    assert phase(measurement, "gradient_processing").fraction == 0.0


def test_communication_of_several_ranks_is_an_observed_zero() -> None:
    assert "communication" not in missing_of(COMMON, world_size=2)


def test_communication_of_one_rank_is_observed_if_there_was_any() -> None:
    assert "communication" not in missing_of(COMMON | {"communication": 1})


def test_a_model_compiled_with_its_loss_hides_both() -> None:
    found = missing_of({"forward_and_loss": 5, "backward": 10, "optimizer": 1})

    assert found["forward"] == found["loss"] == "inside_forward_and_loss"
    assert "forward_and_loss" not in found


def test_a_loss_of_its_own_is_observed() -> None:
    assert "loss" not in missing_of(COMMON | {"loss": 1})


def test_a_loop_without_modules_and_backward_says_so() -> None:
    found = missing_of({"other": 5, "optimizer": 1})

    assert found["forward"] == found["loss"] == "no_module_seen"
    assert found["backward"] == "no_backward_seen"


def test_loading_in_workers_hides_fetch_and_collate() -> None:
    worker = [{"k": "head", "schema": 1, "pid": 9, "ppid": 1, "worker": 0}]
    worker += [{"k": "w", "pid": 9, "batches": 4, "fetch_ns": 8 * MS, "collate_ns": 2 * MS,
                "cpu_ns": MS}]  # fmt: skip
    updates = steady_updates(COMMON | {"input_wait": 4})
    next_epoch = [{**line, "pid": 10} for line in worker]
    del next_epoch[1]["cpu_ns"]
    files = {
        "rank-0.jsonl": [make_head(), *updates],
        "worker-1-0.jsonl": [*worker, *next_epoch],
    }

    measurement = measure(read(dict(files)))

    assert phase(measurement, "fetch").missing == "loads_in_workers"
    assert phase(measurement, "input_wait").fraction == pytest.approx(0.2)
    assert measurement.workers is not None
    assert (measurement.workers.num_workers, measurement.workers.num_batches) == (1, 8)
    assert measurement.workers.fetch_s_per_batch == pytest.approx(0.002)
    assert measurement.workers.cpu_s_per_batch is None


def test_workers_without_a_batch_say_nothing() -> None:
    worker = [{"k": "head", "schema": 1, "pid": 9, "ppid": 1, "worker": 0}]
    worker += [{"k": "w", "pid": 9, "batches": 0, "fetch_ns": 0, "collate_ns": 0, "cpu_ns": 0}]

    assert measure(read({"worker-1-0.jsonl": worker})).workers is None


def test_without_a_batch_there_is_no_input_wait_and_its_time_is_other() -> None:
    lines = steady_updates(COMMON | {"input_wait": 4}, x=by_count(backwards=1))

    measurement = measure_lines(*lines)

    assert phase(measurement, "input_wait").missing == "no_loader_seen"
    assert phase(measurement, "fetch").missing == "no_loader_seen"
    assert phase(measurement, "other").median_s == pytest.approx(0.004)


def test_copies_and_stalls_are_counted_a_step() -> None:
    lines = steady_updates(COMMON, x=by_count(copies=3, syncs=1))

    measurement = measure_lines(*lines)

    assert (measurement.copies_per_step, measurement.syncs_per_step) == (3.0, 1.0)


def test_whatever_the_guest_counts_is_in_the_measurement_by_its_name() -> None:
    each = by_count(**dict.fromkeys(COUNTS, 4 * MS))

    found = measure_lines(*steady_updates(COMMON, x=each)).counts_per_step

    expected = {name: 4 * MS for name in COUNTS if not name.endswith("_ns")}
    expected |= {"gc_s": 0.004, "prepare_s": 0.004}
    assert found == pytest.approx(expected)


def test_device_times_have_medians_of_their_own() -> None:
    device = [make_device(n, {"forward": 40}) for n in range(20)]

    measurement = measure_lines(*steady_updates(COMMON), *device, device="cuda")

    assert phase(measurement, "forward").device_median_s == pytest.approx(0.040)
    assert phase(measurement, "backward").device_median_s == 0.0
    assert note(measurement, "device_time_missing") is None


WAITING = {"input_wait": 2.0, "fetch": 5.0, "collate": 1.0, "forward": 8.0}
ROUGH = {"input_wait": 8.0, "forward": 8.0}


def rough_row(number: int, *, times_ms: dict[str, float] = ROUGH) -> Line:
    """An update that was not sampled: CPU time as a whole, fetch and collate not apart."""
    return make_update(number, times_ms, is_detailed=0, c=by_bucket({"other": 11}))


def test_what_is_sampled_comes_from_the_detailed_steps_alone() -> None:
    lines = [(rough_row(n) if n % 4 else make_update(n, WAITING)) for n in range(40)]

    measurement = measure_lines(*lines)

    assert phase(measurement, "input_wait").fraction == pytest.approx(0.5)
    assert phase(measurement, "fetch").fraction == pytest.approx(5 / 16)
    assert phase(measurement, "fetch").median_s == pytest.approx(0.005)
    assert phase(measurement, "forward").cpu_median_s == pytest.approx(0.008)
    assert phase(measurement, "other").cpu_median_s == 0.0
    assert measurement.steady is not None
    assert measurement.steady.step_cpu_s is not None
    assert measurement.steady.step_cpu_s.estimate == pytest.approx(0.011)


def test_a_window_without_a_detailed_step_has_neither_inner_phases_nor_cpu_times() -> None:
    measurement = measure_lines(make_update(0, WAITING), *map(rough_row, range(1, 9)))

    assert phase(measurement, "fetch").missing == "not_sampled"
    assert phase(measurement, "collate").missing == "not_sampled"
    assert phase(measurement, "forward").cpu_median_s is None
    assert phase(measurement, "input_wait").median_s == pytest.approx(0.008)


def test_detailed_steps_that_did_not_wait_have_no_inner_share() -> None:
    lines = [make_update(n, {"forward": 8}) if n % 2 else rough_row(n) for n in range(2, 20)]

    measurement = measure_lines(make_update(0, WAITING), *lines)

    assert phase(measurement, "fetch").fraction == 0.0
    assert phase(measurement, "input_wait").fraction == pytest.approx(1 / 3, abs=0.02)


def test_blocks_hold_details_of_some_of_their_steps() -> None:
    block = make_block(
        20,
        100,
        round_ms=16,
        num_detailed=10,
        times_ms={"input_wait": 740, "fetch": 50, "collate": 10, "forward": 800},
        cpu_ms={"fetch": 30, "forward": 80},
    )

    measurement = measure_lines(*[make_update(n, WAITING) for n in range(20)], block)

    assert phase(measurement, "input_wait").fraction == pytest.approx(0.5)
    assert phase(measurement, "fetch").fraction == pytest.approx(5 / 16)
    assert phase(measurement, "fetch").median_s == pytest.approx(0.005)
    assert phase(measurement, "forward").cpu_median_s == pytest.approx(0.008)


# -- the whole run


def two_ranks(
    first: Sequence[Line], second: Sequence[Line], **head: Any
) -> dict[str, Sequence[Line | str]]:
    return {
        "rank-0.jsonl": [make_head(world_size=2, **head), *first],
        "rank-1.jsonl": [make_head(rank=1, pid=102, world_size=2, **head), *second],
    }


def test_a_run_steps_as_fast_as_its_slowest_rank() -> None:
    quick, slow = steady_updates({"forward": 10}), steady_updates({"forward": 30}, num=12)

    measurement = measure(read(two_ranks(quick, slow)))

    assert measurement.steady is not None
    assert measurement.steady.step_time_s is not None
    assert measurement.steady.step_time_s.estimate == pytest.approx(0.030)
    assert (measurement.num_ranks, measurement.num_steps) == (2, 20)
    assert [rank.num_steps for rank in measurement.ranks] == [20, 12]


def test_phases_of_a_run_pool_its_ranks() -> None:
    waits = steady_updates({"forward": 10, "communication": 20})
    works = steady_updates({"forward": 30})

    measurement = measure(read(two_ranks(waits, works)))

    assert phase(measurement, "communication").fraction == pytest.approx(1 / 3)
    assert [p.fraction for p in measurement.ranks[1].phases if p.name == "communication"] == [0.0]


def test_counts_are_those_of_the_busiest_rank() -> None:
    first = [*steady_updates({"forward": 1}, num=5), make_end(5)]
    second = [*steady_updates({"forward": 1}, num=9, sk=1), make_end(9, backwards=36)]

    measurement = measure(read(two_ranks(first, second, rank_source="order")))

    assert (measurement.num_optimizer_updates, measurement.num_backwards) == (9, 36)
    assert measurement.num_skipped_updates == 9


def test_of_two_processes_with_one_rank_the_busier_is_shown() -> None:
    files = {
        "rank-0.jsonl": [make_head(), *steady_updates(COMMON, num=3)],
        "rank-0-202.jsonl": [make_head(pid=202, t_unix_s=2000.0), *steady_updates(COMMON, num=8)],
        "rank-0-203.jsonl": [make_head(pid=203, t_unix_s=3000.0), make_update(0)],
        "rank-0-204.jsonl": [make_head(pid=204, t_unix_s=4000.0)],
    }

    measurement = measure(read(dict(files)))

    assert [rank.pid for rank in measurement.ranks] == [202]
    assert note(measurement, "several_processes_stepped") == Note(
        code="several_processes_stepped", facts={"ranks": "0"}
    )


def test_kinds_of_step_that_repeat_have_a_period() -> None:
    measurement = measure_lines(*updates_of(*[0, 0, 0, 1] * 10))

    assert (measurement.num_steps, measurement.period) == (30, 3)


def test_what_the_guest_spent_is_given_a_step() -> None:
    cost = {"k": "o", "updates": 20, "self_ns": MS, "flush_ns": MS, "nested_calls": 2000,
            "nested_ns": 1000, "lost_updates": 0}  # fmt: skip

    measurement = measure_lines(*updates_of(*[0, 1] * 10), cost)

    assert measurement.overhead is not None
    assert measurement.overhead.cpu_s_per_step == pytest.approx(0.0004)
    assert measurement.overhead.fraction == pytest.approx(0.0004 / 0.020)


def test_what_the_guest_spent_is_a_share_of_a_mean_step() -> None:
    cost = {"k": "o", "updates": 64, "self_ns": 64 * MS, "flush_ns": 0, "nested_calls": 0,
            "nested_ns": 0, "lost_updates": 0}  # fmt: skip
    rows = [make_update(n, {"rollout": 160 if n % 4 == 0 else 0, "forward": 10}) for n in range(64)]

    measurement = measure_lines(*rows, cost)

    assert measurement.overhead is not None
    assert measurement.overhead.fraction == pytest.approx(0.001 / 0.050, rel=0.1)


def test_overhead_without_a_steady_step_has_no_fraction() -> None:
    cost = {"k": "o", "updates": 1, "self_ns": MS, "flush_ns": 0, "nested_calls": 0,
            "nested_ns": 0, "lost_updates": 0}  # fmt: skip

    one = measure_lines(make_update(0), cost)
    none = measure_lines(make_update(0), {**cost, "updates": 0})

    assert one.overhead is not None
    assert one.overhead.fraction is None
    assert none.overhead is None


def test_the_load_of_the_machine_is_that_of_the_window() -> None:
    def sample(t_unix_s: float, busy: float, job: float) -> Line:
        return {"k": "h", "t_unix_s": t_unix_s, "dt_s": 1.0, "busy_cores": busy, "job_cores": job}

    host = [{"k": "head", "schema": 1, "num_cores": 4}]
    host += [
        sample(1000.0, 4, 0),
        sample(1001.0, 3, 1),
        sample(1002.0, 1.5, 2),
        sample(1009.0, 4, 0),
    ]
    files = {"rank-0.jsonl": [make_head(), *updates_of(*[0] * 200)], "host.jsonl": host}

    found = measure(read(dict(files))).host

    assert found is not None
    assert found.num_samples == 2
    # The window is 1000.01 to 1002.00.
    assert found.job_cores == pytest.approx((0.99 * 1 + 1.0 * 2) / 1.99)
    assert found.others_cores == pytest.approx((0.99 * 3 + 1.0 * 1.5) / 1.99 - found.job_cores)


def test_a_load_below_the_jobs_own_leaves_nothing_to_others() -> None:
    host = [{"k": "head", "schema": 1, "num_cores": 4}]
    host += [{"k": "h", "t_unix_s": 1001.0, "dt_s": 1.0, "busy_cores": 1.0, "job_cores": 1.1}]
    files = {"rank-0.jsonl": [make_head(), *updates_of(*[0] * 50)], "host.jsonl": host}

    found = measure(read(dict(files))).host

    assert found is not None
    assert found.others_cores == 0.0


def test_samples_from_another_time_are_no_load() -> None:
    host = [{"k": "head", "schema": 1, "num_cores": 4}]
    host += [{"k": "h", "t_unix_s": 5.0, "dt_s": 1.0, "busy_cores": 1.0, "job_cores": 1.0}]

    assert (
        measure(
            read({"rank-0.jsonl": [make_head(), *updates_of(0, 0, 0)], "host.jsonl": host})
        ).host
        is None
    )


@pytest.mark.parametrize(
    ("command", "end"),
    [
        ({}, ProcessEnd(state=RunState.FINISHED, exit_code=0)),
        ({"exit_code": 3}, ProcessEnd(state=RunState.FAILED, exit_code=3)),
        ({"exit_code": None, "signal": 9}, ProcessEnd(state=RunState.KILLED, signal=9)),
        ({"exit_code": None, "ended_unix_s": None}, ProcessEnd(state=RunState.UNKNOWN)),
    ],
)
def test_how_the_command_ended(command: dict[str, Any], end: ProcessEnd) -> None:
    assert measure(read({}, **command)).end == end


def test_the_caller_may_know_more_about_the_end() -> None:
    running = ProcessEnd(state=RunState.RUNNING)

    measurement = measure(read({}, exit_code=None, ended_unix_s=None), end=running)

    assert measurement.end == running
    assert measurement.duration_s is None


def test_a_clock_that_was_set_back_gives_no_duration() -> None:
    assert measure(read({})).duration_s == 60.0
    assert measure(read({}, ended_unix_s=3.0)).duration_s is None


def test_a_run_without_steps_has_no_phase() -> None:
    measurement = measure(read({}))

    assert (measurement.num_steps, measurement.num_ranks, measurement.steady) == (0, 0, None)
    assert {phase.missing for phase in measurement.phases} == {"no_steady_steps"}
    assert len(measurement.phases) == len(PHASES) + len(INNER_PHASES)
    assert measurement.copies_per_step is None


def test_steps_that_took_no_time_have_no_fractions() -> None:
    measurement = measure_lines(make_update(0, WAITING), *steady_updates({})[1:])

    assert phase(measurement, "other").fraction is None
    assert phase(measurement, "fetch").fraction is None


def test_a_measurement_survives_a_round_trip() -> None:
    measurement = measure(read(two_ranks(steady_updates(COMMON), steady_updates(COMMON))))

    assert from_json(Measurement, json.loads(json.dumps(to_json(measurement)))) == measurement


# -- notes

START = {"k": "start", "pid": 101, "ppid": 1, "python": "3.11.7", "argv": [], "t": 1.0}
TORCH = {"k": "torch", "pid": 101, "version": "2.13.0", "t": 2.0}
EXIT = {
    "k": "exit",
    "pid": 101,
    "t": 6.0,
    "updates": 0,
    "backwards": 4,
    "forwards": 3,
    "batches": 2,
}
GOODBYE = {**EXIT, "failures": {}}


@pytest.mark.parametrize(
    ("processes", "codes"),
    [
        ([], {"no_python_seen"}),
        ([{**START, "k": "old", "python": "3.8.1"}], {"old_python"}),
        ([START], {"no_torch_seen"}),
        ([START, TORCH], {"unwritten_steps"}),
        ([START, TORCH, {**GOODBYE, "backwards": 0}], {"no_steps_seen"}),
        ([START, TORCH, GOODBYE], {"no_step_ended"}),
        ([START, TORCH, {**TORCH, "pid": 9}, GOODBYE], {"no_step_ended"}),
        ([START, TORCH, {**GOODBYE, "updates": 7}], {"lost_updates"}),
        ([START, {**TORCH, "too_old": True}], {"old_torch"}),
        ([START, {**TORCH, "failed": "no registry"}], {"hooks_failed"}),
    ],
)
def test_an_empty_record_says_why(processes: list[Line], codes: set[str]) -> None:
    measurement = measure(read({"processes.jsonl": processes}))

    assert {note.code for note in measurement.notes} == codes


def test_a_run_without_steps_says_what_was_seen() -> None:
    exit_ = {**EXIT, "failures": {}}

    found = note(measure(read({"processes.jsonl": [START, TORCH, exit_, exit_]})), "no_step_ended")

    assert found is not None
    assert found.facts == {"forwards": 6, "backwards": 8, "batches": 4}


def test_a_rank_without_an_end_ended_abruptly_if_the_command_is_over() -> None:
    files = {"rank-0.jsonl": [make_head(), make_update(0)]}
    records = read(dict(files))

    over, going_on = measure(records), measure(records, end=ProcessEnd(state=RunState.RUNNING))

    assert note(over, "ended_abruptly") == Note(code="ended_abruptly", facts={"ranks": "0"})
    assert note(going_on, "ended_abruptly") is None
    assert not over.ranks[0].ended_cleanly


def test_an_end_in_order_leaves_no_note() -> None:
    measurement = measure_lines(*updates_of(0, 0), make_end(2))

    assert measurement.notes == ()
    assert measurement.ranks[0].ended_cleanly


def test_lost_updates_and_torn_lines_are_counted() -> None:
    cost = {"k": "o", "updates": 2, "self_ns": 0, "flush_ns": 0, "nested_calls": 0,
            "nested_ns": 0, "lost_updates": 7}  # fmt: skip

    measurement = measure_lines(*updates_of(0, 0), cost, {"k": "u"}, make_end(2))

    assert [note.code for note in measurement.notes] == ["lost_updates", "torn_lines"]
    assert [note.facts for note in measurement.notes] == [{"count": 7}, {"count": 1}]


def test_updates_whose_numbers_are_missing_are_lost_too() -> None:
    first, _, _, last = updates_of(0, 0, 0, 0)

    measurement = measure_lines(first, last)

    assert [note.facts for note in measurement.notes if note.code == "lost_updates"] == [
        {"count": 2}
    ]


def test_failures_of_the_guest_are_counted_once_a_process() -> None:
    files = {
        "processes.jsonl": [
            START,
            {**TORCH, "failures": {"install": 1}, "failure_texts": {"install": "KeyError('x')"}},
            {**EXIT, "failures": {"flush": 2}},
            {**EXIT, "pid": 5, "failures": {"flush": 1}},
        ],
        "rank-0.jsonl": [make_head(), make_update(0), make_end(1, failures={"flush": 2})],
    }

    found = note(measure(read(dict(files))), "guest_failures")

    assert found == Note(
        code="guest_failures", facts={"flush": "3", "install": "1 (KeyError('x'))"}
    )


def test_threads_that_step_beside_the_busiest_are_noted() -> None:
    measurement = measure_lines(make_update(0), make_update(1), make_update(2, th=1))

    assert note(measurement, "several_threads_stepped") == Note(
        code="several_threads_stepped", facts={"ranks": "0"}
    )


def loops_line(*places: int) -> Line:
    rows = [[n, "SGD", "/home/me/train.py", line, None, None] for n, line in enumerate(places)]
    return {"k": "op", "optimizers": rows}


@pytest.mark.parametrize(
    ("optimizers", "lines", "loops"),
    [
        pytest.param([0] * 10 + [1] * 10, (7, 20), 2, id="both before the blocks"),
        pytest.param([0] * 20, (7, 20), 2, id="the second one in blocks"),
        pytest.param([0] * 20, (7, 7), None, id="folds"),
        pytest.param([0, 1] * 10, (7, 8), None, id="GAN"),
    ],
)
def test_loops_that_are_told_as_one_in_a_long_run_are_noted(
    optimizers: list[int], lines: tuple[int, ...], loops: int | None
) -> None:
    rows = updates_of(*optimizers)
    measurement = measure_lines(loops_line(*lines), *rows, make_block(len(rows), 100))

    expected = None if loops is None else Note(code="loops_in_sums", facts={"loops": loops})
    assert note(measurement, "loops_in_sums") == expected
    assert note(measure_lines(loops_line(*lines), *rows), "loops_in_sums") is None


def test_a_device_without_device_times_is_noted() -> None:
    measurement = measure_lines(*updates_of(*[0] * 20), device="cuda")

    assert note(measurement, "device_time_missing") == Note(
        code="device_time_missing", facts={"ranks": "0"}
    )
