"""Steps beside busy neighbors are left out, by what the neighbors did and by nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptime.measure.fold.host_lines import HostSample
from steptime.measure.fold.rank_fold import fold_ranks
from steptime.measure.fold.run_fold import measure
from steptime.measure.series.run_series import make_series
from steptime.measure.wall.quiet_steps import find_stretches
from unit.builders import BUCKETS, Line, make_block, make_head, make_update, read, write_run

STEP_S = 0.1
HOST = {"k": "head", "schema": 1, "num_cores": 2}


def step(number: int, *, end_s: float, seconds: float = STEP_S) -> Line:
    """An update that ends at this time."""
    wall = [0] * len(BUCKETS)
    wall[BUCKETS.index("forward")] = round(seconds * 1e9)
    line = make_update(number, w=wall)
    row = line["rows"][0]
    row[3], row[4] = round((end_s - seconds) * 1e9), round(end_s * 1e9)
    return line


def steps(num: int = 200, times_s: Sequence[float] = ()) -> list[Line]:
    """Steps one after the other, each of 0.1 s unless its time is given."""
    found, end_s = [], 0.0
    for number in range(num):
        seconds = times_s[number] if times_s else STEP_S
        end_s += seconds
        found.append(step(number, end_s=end_s, seconds=seconds))
    return found


def load(others: Sequence[float], job: float | Sequence[float] = 2.0) -> list[Line]:
    """A sample each second: others took so much, and the run what they left of what it wanted."""
    wanted = [job] * len(others) if isinstance(job, float) else job
    return [
        HOST,
        *(
            {
                "k": "h",
                "t_unix_s": 1001.0 + place,
                "dt_s": 1.0,
                "busy_cores": other + min(want, 2 - other),
                "job_cores": min(want, 2 - other),
            }
            for place, (other, want) in enumerate(zip(others, wanted, strict=True))
        ),
    ]


def records_of(lines: Sequence[Line], host: Sequence[Line], **more: Sequence[Line]) -> Any:
    ranks = {f"{name.replace('_', '-')}.jsonl": given for name, given in more.items()}
    return read({"rank-0.jsonl": [make_head(), *lines], "host.jsonl": host, **ranks})


def test_steps_beside_a_neighbor_are_left_out_and_counted() -> None:
    others = [0.0] * 10 + [1.0] * 10
    slow = [STEP_S] * 100 + [2 * STEP_S] * 50
    steady = measure(records_of(steps(150, slow), load(others))).steady

    assert steady is not None
    assert steady.num_beside_neighbor == 50
    assert steady.num_steps + steady.num_warmup_steps + steady.num_beside_neighbor == 150
    assert steady.step_time_s is not None
    assert (steady.step_time_s.estimate, steady.step_time_s.high) == pytest.approx((0.1, 0.1))
    assert steady.mean_of_all_s == pytest.approx((99 * 0.1 + 50 * 0.2) / 149)
    assert "beside other programs" in steady.rule


def test_the_load_is_that_of_the_steps_that_count() -> None:
    measured = measure(records_of(steps(200), load([0.0] * 10 + [1.0] * 10)))

    assert measured.host is not None
    assert measured.host.others_cores == 0.0
    assert measured.host.num_samples == 10


def test_phases_are_those_of_the_steps_that_count() -> None:
    lines = steps(100, [0.1] * 50 + [0.4] * 50)
    measured = measure(records_of(lines, load([0.0] * 5 + [1.0] * 21)))
    forward = next(phase for phase in measured.phases if phase.name == "forward")

    assert forward.median_s == pytest.approx(0.1)


def test_early_steps_beside_a_neighbor_are_no_warmup() -> None:
    steady = measure(records_of(steps(200), load([1.0] * 10 + [0.0] * 10))).steady

    assert steady is not None
    assert steady.first_step >= 100
    assert steady.num_warmup_steps <= 5
    # The very first step never counts; the last in the stretch may begin a rounding later.
    assert steady.num_beside_neighbor == pytest.approx(99, abs=1)


@pytest.mark.parametrize(
    ("num_quiet_s", "num_left_out"),
    [(1, 0), (2, 0), (3, 0), (5, 150)],
    ids=["10 quiet steps", "19 quiet steps", "below a fifth", "a quarter"],
)
def test_all_steps_count_where_too_few_are_quiet(num_quiet_s: int, num_left_out: int) -> None:
    others = [0.0] * num_quiet_s + [1.0] * (20 - num_quiet_s)
    steady = measure(records_of(steps(200), load(others, [2.0] * 20))).steady

    assert steady is not None
    assert steady.num_beside_neighbor == pytest.approx(num_left_out, abs=1)


@pytest.mark.parametrize(
    ("others", "job", "is_cut"),
    [
        (0.2, 2.0, False),
        (0.3, 2.0, True),
        (1.0, 1.0, False),
        (1.3, 1.0, True),
    ],
    ids=["little", "a part of a core", "the core that the run leaves", "more than it leaves"],
)
def test_others_count_where_they_take_what_the_run_wants(
    *, others: float, job: float, is_cut: bool
) -> None:
    steady = measure(records_of(steps(200), load([0.0] * 10 + [others] * 10, job))).steady

    assert steady is not None
    assert (steady.num_beside_neighbor > 0) is is_cut


def test_a_start_of_workers_is_not_what_the_run_wants() -> None:
    samples = [
        HostSample(t_unix_s=float(i), dt_s=1.0, busy_cores=1.5, job_cores=1.0) for i in range(20)
    ]
    burst = HostSample(t_unix_s=20.0, dt_s=1.0, busy_cores=2.0, job_cores=2.0)

    assert find_stretches([*samples, burst], num_cores=2) == ()
    assert find_stretches([], num_cores=2) == ()


def test_samples_before_the_first_step_are_not_asked() -> None:
    """The imports take one core, the steps two."""
    before = [{**line, "t_unix_s": line["t_unix_s"] - 100.0} for line in load([1.0] * 90)[1:]]
    records = records_of(steps(200), [HOST, *before, *load([0.0] * 20)[1:]])
    assert fold_ranks(records).left_out == ()


@given(
    slow=st.lists(st.floats(0.01, 0.4), min_size=60, max_size=60),
    busy=st.lists(st.booleans(), min_size=30, max_size=30),
)
def test_how_long_a_step_took_never_decides(slow: list[float], busy: list[bool]) -> None:
    """Two runs beside the same neighbors: steps begin alike, and end as they like."""
    host = load([1.0 if one else 0.0 for one in busy], [2.0] * 30)
    usual_s = sorted(slow)[30]  # the first step never counts, so 59 have a median
    timed = [0.4 if one > usual_s else 0.01 if one < usual_s else one for one in slow]
    found = []
    for times_s in (slow, timed):
        lines = [step(n, end_s=0.5 * n + s, seconds=s) for n, s in enumerate(times_s)]
        found.append(fold_ranks(records_of(lines, host)).ranks[0].series)

    one, other = found
    edges = {n for n in range(60) if 0.5 * n % 1.0 == 0.5}  # the next second begins 0.5 s later
    assert one.beside_neighbor - edges == other.beside_neighbor - edges


def test_a_long_step_is_not_likelier_to_be_left_out() -> None:
    """Every tenth step takes ten times as long and reaches into the neighbor's second."""
    times_s = [1.0 if number % 10 == 9 else 0.1 for number in range(200)]
    others = [float(place % 2) for place in range(40)]
    folded = fold_ranks(records_of(steps(200, times_s), load(others)))
    series = folded.ranks[0].series

    long = {number for number in range(200) if number % 10 == 9}
    share = len(series.beside_neighbor & long) / len(long)
    assert share == pytest.approx(len(series.beside_neighbor) / 200, abs=0.15)


def test_blocks_count_step_by_step_for_times_and_as_a_whole_for_phases() -> None:
    head = make_head()
    blocks = [make_block(number, 100) for number in range(0, 1000, 100)]  # 1 s each
    records = read(
        {"rank-0.jsonl": [head, *blocks], "host.jsonl": load([0.0] * 4 + [1.0] * 2 + [0.0] * 4)}
    )
    folded = fold_ranks(records)
    window = folded.ranks[0].window

    assert window.steady.num_beside_neighbor == pytest.approx(200, abs=2)
    assert len(window.blocks) <= 8
    assert all(block.first_index not in (400, 500) for block in window.blocks)


def test_what_one_rank_leaves_out_counts_for_none() -> None:
    second = [make_head(rank=1, pid=102), *steps(200)]
    measured = measure(records_of(steps(200), load([0.0] * 10 + [1.0] * 10), rank_1=second))

    assert measured.steady is not None
    assert measured.steady.num_beside_neighbor == 100


def test_a_change_that_a_neighbor_makes_stays_in_the_series(tmp_path: Any) -> None:
    folder = write_run(
        tmp_path / "run",
        {
            "rank-0.jsonl": [make_head(), *steps(200)],
            "host.jsonl": load([0.0] * 10 + [1.0] * 10),
        },
    )
    from steptime.measure.fold.run_records import read_records

    folded = fold_ranks(read_records(folder))
    series = make_series(folder, folded, measurement=None)
    assert sum(point.is_steady for point in series.steps) > 190


def test_without_a_load_every_step_counts() -> None:
    measured = measure(read({"rank-0.jsonl": [make_head(), *steps(50)]}))

    assert measured.steady is not None
    assert measured.steady.num_beside_neighbor == 0


def test_a_neighbor_that_is_always_there_leaves_nothing_out() -> None:
    """Some samples have more of it than others, but none is quiet."""
    others = [1.0, 1.2, 1.6, 1.1] * 5
    assert fold_ranks(records_of(steps(200), load(others))).left_out == ()


def test_a_training_that_outlives_what_was_seen_of_the_machine_leaves_nothing_out() -> None:
    others = [0.0] * 8 + [1.0] * 4
    assert fold_ranks(records_of(steps(200), load(others))).left_out == ()
    assert fold_ranks(records_of(steps(120), load(others))).left_out != ()


@pytest.mark.parametrize(("delayed", "num"), [(None, 1), (0.5, 1), (0.01, 0)])
def test_a_neighbor_that_costs_the_run_nothing_leaves_no_step_out(
    delayed: float | None, num: int
) -> None:
    quiet = HostSample(t_unix_s=1.0, dt_s=1.0, busy_cores=2.0, job_cores=2.0)
    beside = HostSample(
        t_unix_s=2.0, dt_s=1.0, busy_cores=2.0, job_cores=1.0, delayed_fraction=delayed
    )
    assert len(find_stretches([quiet, beside], num_cores=2)) == num
