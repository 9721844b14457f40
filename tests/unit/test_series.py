"""The series beside the steps, from the files of a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from steptime.errors import DamagedRunError, NotFoundError
from steptime.measure.fold.run_fold import measure
from steptime.measure.fold.run_records import read_records
from steptime.measure.series.host_points import merge_host, read_points
from steptime.measure.series.run_series import read_series, read_slices
from steptime.measure.series.thin_steps import find_outliers
from steptime.measure.values.over_time import DevicePoint, Event, HostPoint, RunSeries, StepPoint
from steptime.record import buckets
from unit.builders import (
    BUCKETS,
    COUNTS,
    MS,
    Line,
    by_count,
    make_block,
    make_end,
    make_head,
    make_row,
    make_update,
    write_run,
)

HOST_HEAD: Line = {"k": "head", "schema": 1, "num_cores": 2}


def make_host(t_unix_s: float, **fields: float | None) -> Line:
    cores = {"busy_cores": 1.5, "job_cores": 1.0}
    return {"k": "h", "t_unix_s": t_unix_s, "dt_s": 1.0, **cores, **fields}


def make_device(t_unix_s: float, device: str = "GPU-a", **fields: object) -> Line:
    return {"k": "d", "t_unix_s": t_unix_s, "device": device, **fields}


def series_of(
    folder: Path, *lines: Line | str, host: Sequence[Line | str] = (), max_steps: int = 4000
) -> RunSeries:
    """Of one rank with these lines."""
    files: dict[str, Sequence[Line | str]] = {"host.jsonl": [HOST_HEAD, *host]}
    if lines:
        files["rank-0.jsonl"] = [make_head(), *lines]
    return read_series(write_run(folder / "run", files), None, max_steps=max_steps)


def updates(times_ms: Sequence[float]) -> list[Line]:
    """An update each, one after the other, all forward."""
    lines, end_ns = [], 0
    for number, time_ms in enumerate(times_ms):
        row = make_row(number, {"forward": time_ms})
        end_ns += round(time_ms * MS)
        row[3:5] = [end_ns - round(time_ms * MS), end_ns]
        lines.append({"k": "u", "rows": [row]})
    return lines


# -- steps


def test_each_step_has_its_time_its_phases_and_its_end_on_the_clock_of_the_day(
    tmp_path: Path,
) -> None:
    found = series_of(tmp_path, make_update(0), make_update(1, {"forward": 6, "fetch": 4}))
    first, second = found.steps
    assert (first.index, first.rank, first.num_steps) == (0, 0, 1)
    assert second.end_unix_s == pytest.approx(1000.02)
    assert second.step_time_s == pytest.approx(0.010)
    assert second.wall_s["forward"] == pytest.approx(0.006)
    assert second.wall_s["input_wait"] == pytest.approx(0.004)
    assert sum(second.wall_s.values()) == pytest.approx(second.step_time_s)


def test_warmup_is_what_comes_before_the_steady_window(tmp_path: Path) -> None:
    found = series_of(tmp_path, *updates([50.0] * 10 + [10.0] * 60))
    measured = measure(read_records(tmp_path / "run"))
    assert measured.steady is not None
    first = measured.steady.first_step
    assert 10 <= first < 30
    assert [s.index for s in found.steps if s.is_warmup] == list(range(first))
    assert [s.index for s in found.steps if s.is_steady] == list(range(first, 70))
    assert found == read_series(tmp_path / "run", measured)


def test_a_step_that_compiled_is_disturbed_and_counts_for_nothing(tmp_path: Path) -> None:
    lines = updates([10.0] * 60)
    lines[50] = make_update(50, {"forward": 10, "compile": 5000})
    found = series_of(tmp_path, *lines)
    assert [s.index for s in found.steps if s.is_disturbed] == [0, 50]
    assert not found.steps[50].is_steady


def test_a_step_far_longer_than_its_neighbors_is_an_outlier(tmp_path: Path) -> None:
    times = [10.0 + 0.1 * (number % 7) for number in range(80)]
    times[60] = 45.0
    found = series_of(tmp_path, *updates(times))
    assert [s.index for s in found.steps if s.is_outlier] == [60]


def test_a_lasting_change_makes_no_outliers() -> None:
    times = dict(enumerate([0.010] * 400 + [0.020] * 400))
    assert find_outliers(times, frozenset()) == {}


@pytest.mark.parametrize("times", [[0.010] * 330 + [0.080] * 70, [0.080] * 70 + [0.010] * 330])
def test_a_lasting_change_near_an_end_makes_no_outliers(times: list[float]) -> None:
    assert find_outliers(dict(enumerate(times)), frozenset()) == {}


def test_too_few_steps_have_no_outliers() -> None:
    assert find_outliers(dict(enumerate([0.01] * 10 + [9.0])), frozenset()) == {}


def test_thinned_steps_keep_the_outliers_and_the_sum_of_the_time(tmp_path: Path) -> None:
    times = [10.0 + 0.1 * (number % 7) for number in range(1000)]
    times[600], times[700] = 45.0, 80.0
    found = series_of(tmp_path, *updates(times), max_steps=50)
    assert len(found.steps) <= 50
    assert [s.index for s in found.steps if s.is_outlier] == [600, 700]
    assert sum(s.num_steps for s in found.steps) == 1000
    total_s = sum(s.num_steps * s.step_time_s for s in found.steps)
    assert total_s == pytest.approx(sum(times) / 1000)
    ends = [s.end_unix_s for s in found.steps]
    assert ends == sorted(ends)


def test_steps_of_a_block_have_the_phases_of_its_mean_only_together(tmp_path: Path) -> None:
    lines = [make_update(0), make_block(1, 40), make_end(41)]
    alone = series_of(tmp_path, *lines)
    assert [s.index for s in alone.steps] == list(range(41))
    assert alone.steps[7].wall_s == {}
    together = series_of(tmp_path, *lines, max_steps=5)
    assert together.steps[-1].wall_s["forward"] == pytest.approx(0.010)
    assert together.steps[-1].end_unix_s == pytest.approx(1000.41)


def test_steps_have_the_sizes_that_their_work_goes_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unit.builders.COUNTS", buckets.COUNTS)
    counts = {"input_rows": 80, "input_elements": 400}
    lines = [make_update(0, x=by_count(input_rows=4)), make_block(1, 40, counts=counts)]
    together = series_of(tmp_path, *lines, make_end(41), max_steps=5)
    assert together.steps[0].sizes[:2] == (4, 0)
    assert together.steps[-1].sizes[:2] == (2, 10)


def test_points_are_shared_among_the_ranks(tmp_path: Path) -> None:
    files = {
        f"rank-{rank}.jsonl": [make_head(rank=rank, pid=200 + rank), *updates([10.0] * 200)]
        for rank in range(2)
    }
    found = read_series(write_run(tmp_path / "run", files), None, max_steps=40)
    counts = [sum(s.rank == rank for s in found.steps) for rank in range(2)]
    assert all(10 <= count <= 20 for count in counts)


# -- events


def test_spans_are_events_at_the_step_they_precede(tmp_path: Path) -> None:
    update = make_update(1, {"forward": 4, "evaluation": 5, "checkpoint": 1})
    found = series_of(tmp_path, make_update(0), update)
    evaluation, checkpoint = found.events
    assert evaluation == Event(
        what="evaluation", rank=0, t_unix_s=pytest.approx(1000.010), seconds=0.005, step=1
    )
    assert (checkpoint.what, checkpoint.t_unix_s) == ("checkpoint", pytest.approx(1000.015))


def test_a_span_after_the_last_step_is_told(tmp_path: Path) -> None:
    tail = [0] * len(BUCKETS)
    tail[BUCKETS.index("evaluation")] = 2000 * MS
    found = series_of(tmp_path, make_update(0), make_end(1, tail=tail))
    (event,) = found.events
    assert (event.what, event.seconds, event.step) == ("evaluation", 2.0, 0)
    assert event.t_unix_s == pytest.approx(1000.01)


def test_a_collection_of_garbage_has_its_own_time(tmp_path: Path) -> None:
    line = {"k": "gc", "rows": [[15 * MS, 3 * MS, 2]]}
    found = series_of(tmp_path, make_update(0), make_update(1), line)
    expected = Event(
        what="gc",
        rank=0,
        t_unix_s=pytest.approx(1000.015),
        seconds=pytest.approx(0.003),
        step=1,
        text="generation 2",
    )
    assert found.events == (expected,)


def test_a_guest_that_tells_no_collections_leaves_their_sums(tmp_path: Path) -> None:
    short = make_update(0, x=by_count(gc_pauses=1, gc_ns=MS // 2))
    long = make_update(1, x=by_count(gc_pauses=3, gc_ns=4 * MS))
    (event,) = series_of(tmp_path, short, long).events
    assert (event.what, event.step, event.count) == ("gc", 1, 3)
    assert event.seconds == pytest.approx(0.004)


def test_recompiles_and_graph_breaks_have_their_step_and_reason(tmp_path: Path) -> None:
    rows = [
        ["compile", 1000.001, 0.002, None, "/home/me/model.py", 9],
        ["recompile", 1000.012, 0.003, "size of x", "/home/me/model.py", 9],
        ["graph_break", 1000.013, None, "call to print", None, None],
    ]
    found = series_of(tmp_path, make_update(0), make_update(1), {"k": "ce", "rows": rows})
    assert [(e.what, e.step, e.seconds) for e in found.events] == [
        ("compile", 0, 0.002),
        ("recompile", 1, 0.003),
        ("graph_break", 1, None),
    ]
    assert [e.text for e in found.events] == [
        "/home/me/model.py:9",
        "size of x, /home/me/model.py:9",
        "call to print",
    ]


def test_the_time_of_compiling_is_told_once(tmp_path: Path) -> None:
    row = ["compile", 1000.001, 0.004, None, None, None]
    update = make_update(0, {"forward": 5, "compile": 5})
    found = series_of(tmp_path, update, {"k": "ce", "rows": [row]})
    assert [(e.what, e.seconds) for e in found.events] == [("compile", 0.005)]


def test_of_too_many_events_the_longest_stay(tmp_path: Path) -> None:
    rows = [[number * MS, (5 + number % 3) * MS, 2] for number in range(90)]
    found = series_of(tmp_path, *updates([10.0] * 10), {"k": "gc", "rows": rows}, max_steps=60)
    assert [e.seconds for e in found.events] == [pytest.approx(0.007)] * 30


def test_an_event_within_a_block_has_a_step_of_it(tmp_path: Path) -> None:
    line = {"k": "gc", "rows": [[215 * MS, 3 * MS, 2], [999 * MS, 3 * MS, 2]]}
    found = series_of(tmp_path, make_update(0), make_block(1, 40), line, make_end(41))
    assert [e.step for e in found.events] == [21, 40]


# -- the machine and its devices


def test_the_machine_and_its_devices_are_read(tmp_path: Path) -> None:
    host = [
        make_host(1001.0, worker_cores=0.5, disk_read_bytes=4096, clock_hz=2.5e9),
        make_device(1001.2, busy_fraction=0.9, power_w=300.5, throttle=["power_cap"]),
    ]
    found = series_of(tmp_path, host=host)
    assert found == RunSeries(
        host=(
            HostPoint(
                t_unix_s=1001.0,
                dt_s=1.0,
                busy_cores=1.5,
                job_cores=1.0,
                worker_cores=0.5,
                disk_read_bytes=4096,
                clock_hz=2.5e9,
            ),
        ),
        devices=(
            DevicePoint(
                t_unix_s=1001.2,
                device="GPU-a",
                busy_fraction=0.9,
                power_w=300.5,
                throttle=("power_cap",),
            ),
        ),
    )


def test_devices_that_the_command_did_not_use_are_left_out_where_that_is_known(
    tmp_path: Path,
) -> None:
    idle = [make_device(1001.0, "GPU-a", job=False), make_device(1001.0, "GPU-b", job=False)]
    assert len(series_of(tmp_path, host=idle).devices) == 2
    used = [*idle, make_device(1002.0, "GPU-b", job=True)]
    assert {p.device for p in series_of(tmp_path, host=used).devices} == {"GPU-b"}


def test_neighboring_points_are_merged_where_there_are_too_many(tmp_path: Path) -> None:
    host = [make_host(1000.0 + n, job_cores=float(n % 2), sent_bytes=10) for n in range(100)]
    found = series_of(tmp_path, host=host, max_steps=20).host
    assert len(found) == 10
    assert (found[0].dt_s, found[0].job_cores, found[0].sent_bytes) == (10.0, 0.5, 100)
    assert found[0].disk_read_bytes is None


def test_merged_devices_keep_all_that_held_their_clock_down(tmp_path: Path) -> None:
    host = [
        make_device(1000.0, used_bytes=10, energy_j=5.0, throttle=["thermal"]),
        make_device(1001.0, used_bytes=20, energy_j=9.0, throttle=["power_cap"]),
    ]
    (found,) = series_of(tmp_path, host=host, max_steps=2).devices
    assert (found.used_bytes, found.energy_j) == (15, 9.0)
    assert found.throttle == ("power_cap", "thermal")


def test_points_without_a_length_are_left_out(tmp_path: Path) -> None:
    assert series_of(tmp_path, host=[make_host(1001.0, dt_s=0.0)]).host == ()


def test_no_points_are_no_points(tmp_path: Path) -> None:
    assert merge_host([], 10) == ()
    assert read_points(tmp_path / "host.jsonl", max_points=10) == ((), ())


# -- energy


def make_powered(
    *points: tuple[float, float | None, float | None], device: str = "a"
) -> tuple[DevicePoint, ...]:
    """Looks at a device: when, energy so far, power."""
    return tuple(
        DevicePoint(t_unix_s=t, device=device, energy_j=energy_j, power_w=power_w)
        for t, energy_j, power_w in points
    )


def make_steady(num_steps: int, *, rank: int = 0) -> tuple[StepPoint, ...]:
    """Steps of half a second from 100 on, all of which count, after one that does not."""
    early = StepPoint(rank=rank, index=0, end_unix_s=100.0, step_time_s=9.0, wall_s={})
    return early, *(
        StepPoint(
            rank=rank,
            index=1 + n,
            end_unix_s=100.5 + n / 2,
            step_time_s=0.5,
            wall_s={},
            is_steady=True,
        )
        for n in range(num_steps)
    )


def test_energy_a_step_is_what_was_counted_between_first_and_last() -> None:
    counted = make_powered((99.5, 900.0, None), (100.5, 1000.0, None), (102.5, 1400.0, None))
    found = RunSeries(steps=make_steady(4), devices=counted)
    assert found.energy_per_step_j() == pytest.approx((1300 - 950) / 4)


def test_devices_add_up_and_ranks_share_their_steps() -> None:
    devices = [
        *make_powered((100.0, 0.0, None), (102.0, 400.0, None)),
        *make_powered((100.0, None, 50.0), (102.0, None, 50.0), device="b"),
    ]
    found = RunSeries(steps=(*make_steady(4), *make_steady(4, rank=1)), devices=tuple(devices))
    assert found.energy_per_step_j() == pytest.approx((400 + 100) / 4)


def test_energy_is_not_known_without_devices_steps_or_looks_around_them() -> None:
    counted = make_powered((99.0, 0.0, None), (103.0, 400.0, None))
    assert RunSeries(steps=make_steady(4)).energy_per_step_j() is None
    assert RunSeries(devices=counted).energy_per_step_j() is None
    alone = make_powered((100.0, 0.0, None))
    assert RunSeries(steps=make_steady(4), devices=alone).energy_per_step_j() is None
    late = make_powered((200.0, 0.0, None), (201.0, 9.0, None))
    assert RunSeries(steps=make_steady(4), devices=late).energy_per_step_j() is None


@pytest.mark.parametrize(
    ("begin", "is_known"),
    [(99.75, False), (100.0, True), (100.5, True), (101.0, True), (101.25, False)],
)
def test_energy_reaches_one_interval_beyond_its_samples(begin: float, *, is_known: bool) -> None:
    """Steady steps run from 100 to 102 s, and the samples are a second apart."""
    counted = make_powered((begin, 0.0, None), (begin + 1, 100.0, None))
    found = RunSeries(steps=make_steady(4), devices=counted).energy_per_step_j()
    assert found == (pytest.approx(50.0) if is_known else None)


# -- bad days


def test_damaged_lines_cost_themselves_alone(tmp_path: Path) -> None:
    lines = [
        make_update(0),
        '{"k": "gc", "rows": [[1]]}\n',
        '{"k": "ce", "rows": 3}\n',
        '{"k": "u"',
    ]
    host = [make_host(1001.0), make_host(1002.0, job_cores=None), '{"k": "h", "t_un']
    found = series_of(tmp_path, *lines, host=host)
    assert (len(found.steps), len(found.events), len(found.host)) == (1, 0, 1)


def test_a_run_that_has_not_stepped_has_its_machine(tmp_path: Path) -> None:
    found = series_of(tmp_path, host=[make_host(1001.0)])
    assert (found.steps, found.events, len(found.host)) == ((), (), 1)


def test_a_folder_that_is_none_is_said(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        read_series(tmp_path / "nowhere", None)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DamagedRunError):
        read_series(tmp_path / "empty", None)


# -- the order within a step


def make_markers(number: int, *pairs: tuple[float, str]) -> Line:
    """Raw markers of an update: when [ms after its start], and what begins there."""
    names = [*BUCKETS, *COUNTS, "after_forward", "after_backward", "closure_head", "closure_tail"]
    values = [v for at_ms, name in pairs for v in (round(at_ms * MS), names.index(name))]
    return {"k": "e", "n": number, "e": values}


def slices_of(folder: Path, *lines: Line) -> list[tuple[str, float, float]]:
    """Name, beginning [ms after the head's time] and length [ms]."""
    pending = ["after_forward", "after_backward", "closure_head", "closure_tail"]
    write_run(folder / "run", {"rank-0.jsonl": [make_head(pending=pending), *lines]})
    return [
        (piece.name, round((piece.t_unix_s - 1000) * 1e3, 3), round(piece.seconds * 1e3, 3))
        for piece in read_slices(folder / "run")
    ]


def test_markers_are_pieces_of_time_named_by_what_comes_next(tmp_path: Path) -> None:
    markers = make_markers(
        1,
        (0.5, "input_wait"),
        (1, "other"),
        (1.5, "forward"),
        (3, "after_forward"),
        (4, "backward"),
        (8, "after_backward"),
        (9, "optimizer"),
    )
    assert slices_of(tmp_path, make_update(0), make_update(1), markers) == [
        ("input_wait", 10.5, 0.5),
        ("forward", 11.5, 1.5),
        ("loss", 13.0, 1.0),
        ("backward", 14.0, 4.0),
        ("gradient_processing", 18.0, 1.0),
        ("optimizer", 19.0, 1.0),
    ]


def test_neighbors_of_one_name_are_one_piece_and_what_led_nowhere_is_other(tmp_path: Path) -> None:
    markers = make_markers(
        0,
        (0, "closure_head"),
        (1, "optimizer"),
        (2, "closure_tail"),
        (3, "after_forward"),
        (3, "input_wait"),
        (20, "forward"),
    )
    assert slices_of(tmp_path, make_update(0), markers) == [
        ("optimizer", 0.0, 3.0),
        ("input_wait", 3.0, 7.0),
    ]


def test_a_bucket_that_is_not_known_here_is_other(tmp_path: Path) -> None:
    markers = {"k": "e", "n": 0, "e": [0, 5, 2 * MS, 99]}
    assert slices_of(tmp_path, make_update(0), markers) == [("forward", 0.0, 2.0)]


def test_a_span_begins_where_its_marker_stood(tmp_path: Path) -> None:
    update = make_update(1, {"forward": 4, "checkpoint": 6})
    markers = make_markers(1, (0, "forward"), (4, "checkpoint"))
    (event,) = series_of(tmp_path, make_update(0), update, markers).events
    assert (event.what, event.t_unix_s) == ("checkpoint", pytest.approx(1000.014))
    assert event.seconds == pytest.approx(0.006)
