"""The watch over a run's folder, with a clock and processes of our own."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from steptime.desync.recorded_calls import RankCalls
from steptime.measure.values.stall import StackFrame, Stall, ThreadStack
from steptime.measure.wall.stall_file import read_stalls
from steptime.record.files import STALLS
from steptime.record.lines import Torn
from steptime.watch.stalls.process_stacks import KernelState, ProcessProbe
from steptime.watch.stalls.stall_watch import FLOOR_S, UNKNOWN_S, StallWatch, WatchReaders
from unit.builders import BUCKETS, MS, make_end, make_head, make_row, make_spans
from unit.test_desync import FIRST, ODD, call, usual, world
from unit.test_desync import make_rank as make_calls

TORCH = "/env/lib/python3.11/site-packages/torch"
SCRIPT = "/home/me/project/train.py"
REDUCE = (
    StackFrame(function="all_reduce", file=f"{TORCH}/distributed/distributed_c10d.py", line=9),
    StackFrame(function="main", file=SCRIPT, line=40),
)
HERE = (StackFrame(function="main", file=SCRIPT, line=31),)
LOADING = (
    StackFrame(function="_try_get_data", file=f"{TORCH}/utils/data/dataloader.py", line=9),
    StackFrame(function="main", file=SCRIPT, line=20),
)
SAVING = (
    StackFrame(function="save", file=f"{TORCH}/serialization.py", line=9),
    StackFrame(function="main", file=SCRIPT, line=60),
)


def make_probe(
    pid: int, frames: tuple[StackFrame, ...] = HERE, *, cpu_s: float = 0.0, state: str = "S"
) -> ProcessProbe:
    thread = ThreadStack(pid=pid, thread="MainThread", frames=frames, is_main=True)
    return ProcessProbe(
        pid=pid, threads=(thread,), kernel=KernelState(state=state, syscall="futex"), cpu_s=cpu_s
    )


class FakeRun:
    """A run whose ranks step and stand as the test says; a look at them is counted."""

    def __init__(
        self, folder: Path, *, num_ranks: int = 1, calls: Sequence[RankCalls] = ()
    ) -> None:
        self.folder = folder
        self.clock_s = 500.0
        self.num_probes = 0
        self.cost_s = 0.0
        self.cost_of_reading_s = 0.0
        self.num_updates = dict.fromkeys(range(num_ranks), 0)
        self.probes = {101 + rank: make_probe(101 + rank) for rank in range(num_ranks)}
        self.children: tuple[int, ...] = ()
        for rank in range(num_ranks):
            head = make_head(rank=rank, pid=101 + rank, world_size=num_ranks)
            self.write(rank, head)
        readers = WatchReaders(
            clock_s=lambda: self.clock_s,
            cost_s=self.read_cost,
            unix_s=lambda: 1000.0 + self.clock_s,
            probe=self.probe,
            children=lambda _: self.children,
            calls=lambda *_: calls,
        )
        self.watch = StallWatch(folder, cwd="/home/me/project", readers=readers)

    def read_cost(self) -> float:
        self.cost_s += self.cost_of_reading_s
        return self.cost_s

    def probe(self, pid: int) -> ProcessProbe:
        self.num_probes += 1
        return self.probes[pid]

    def write(self, rank: int, *lines: Any) -> None:
        with (self.folder / f"rank-{rank}.jsonl").open("a") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)

    def step(self, num: int = 20, ranks: Iterable[int] | None = None, **times_ms: float) -> None:
        """Steps of 10 ms, written now and seen; `times_ms` are of the last of them, by bucket."""
        for rank in self.num_updates if ranks is None else ranks:
            first = self.num_updates[rank]
            rows = [make_row(first + i) for i in range(num)]
            if times_ms:
                wall = [round(times_ms.get(bucket, 0) * MS) for bucket in BUCKETS]
                rows[-1] = make_row(first + num - 1, w=wall)
            self.write(rank, {"k": "u", "rows": rows})
            self.num_updates[rank] += num
        self.watch.take()

    def wait(self, seconds: float) -> None:
        """Time passes, and the watch looks each second."""
        until = self.clock_s + seconds
        while self.clock_s < until:
            self.clock_s += 1.0
            self.watch.take()

    @property
    def stalls(self) -> tuple[Stall, ...]:
        return read_stalls(self.folder, Torn())


@pytest.fixture
def run(tmp_path: Path) -> FakeRun:
    return FakeRun(tmp_path)


@pytest.fixture
def pair(tmp_path: Path) -> FakeRun:
    return FakeRun(tmp_path, num_ranks=2)


# -- when


def test_no_process_is_looked_at_while_steps_come(run: FakeRun) -> None:
    for _ in range(30):
        run.step()
        run.wait(1)

    assert (run.num_probes, run.stalls) == (0, ())
    assert not (run.folder / STALLS).exists()


def test_no_step_for_the_floor_and_a_second_look_is_a_stall(run: FakeRun) -> None:
    run.step()
    run.wait(FLOOR_S + 4)

    (stall,) = run.stalls
    assert stall.limit_s == FLOOR_S
    assert stall.usual_step_s == pytest.approx(0.010)
    assert stall.began_unix_s == pytest.approx(1000.2)
    assert stall.duration_s is None
    (rank,) = stall.ranks
    assert (rank.rank, rank.pid, rank.num_steps) == (0, 101, 20)
    assert (rank.waits_in, rank.where) == ("lock", "train.py:31")
    assert rank.stacks[0].frames == HERE


def test_a_stall_is_written_once_and_its_processes_are_left_alone_then(run: FakeRun) -> None:
    run.step()
    run.wait(FLOOR_S + 4)
    seen = run.num_probes
    run.wait(3600)

    assert len(run.stalls) == 1
    assert run.num_probes == seen


def test_long_steps_have_ten_times_their_usual_time(run: FakeRun) -> None:
    run.step(3, forward=5000)
    run.step(1, forward=5000)
    run.step(1, forward=5000)
    run.step(1, forward=5000)
    run.step(1, forward=5000)
    run.wait(49)
    assert run.num_probes == 0
    run.wait(6)

    assert [stall.limit_s for stall in run.stalls] == [pytest.approx(50.0)]


def test_when_steps_come_again_the_stall_has_a_duration_and_the_next_one_is_new(
    run: FakeRun,
) -> None:
    run.step(100)
    run.wait(20)
    run.write(0, {"k": "u", "rows": [make_row(2100)]})
    run.num_updates[0] = 2101
    run.wait(1)
    run.step()
    run.wait(20)

    first, second = run.stalls
    assert first.duration_s == pytest.approx(20.01)
    assert second.duration_s is None


def test_steps_that_a_rank_writes_as_it_is_ended_do_not_end_the_stall(run: FakeRun) -> None:
    run.step(100)
    run.wait(20)
    run.write(0, {"k": "u", "rows": [make_row(100 + i) for i in range(20)]}, make_end(120))
    run.wait(5)

    assert [stall.duration_s for stall in run.stalls] == [None]


def test_the_time_before_the_first_step_has_no_limit(run: FakeRun) -> None:
    run.wait(3 * UNKNOWN_S)

    assert (run.num_probes, run.stalls) == (0, ())


def test_a_rank_that_has_ended_in_order_is_no_stall(run: FakeRun) -> None:
    run.step()
    run.write(0, make_end(20))
    run.wait(UNKNOWN_S)

    assert (run.num_probes, run.stalls) == (0, ())


def test_time_in_which_we_did_not_run_either_is_no_pause(run: FakeRun) -> None:
    run.step()
    run.clock_s += 3600  # Ctrl-Z, or the lid was closed
    run.watch.take()
    run.wait(FLOOR_S - 2)

    assert run.num_probes == 0


def test_a_process_that_somebody_stopped_is_no_stall(run: FakeRun) -> None:
    run.probes[101] = make_probe(101, state="T")
    run.step()
    run.wait(UNKNOWN_S + 60)

    assert run.stalls == ()


def test_many_ranks_are_read_more_rarely_and_a_stall_is_seen_all_the_same(run: FakeRun) -> None:
    run.cost_of_reading_s = 0.06
    run.step()
    for _ in range(4):
        interval_s = run.watch.take()
        run.clock_s += interval_s

    assert interval_s == pytest.approx(20.0)
    assert len(run.stalls) == 1


# -- what is no hang


def test_a_process_that_computes_is_given_five_minutes(run: FakeRun) -> None:
    run.step()
    for _ in range(int(UNKNOWN_S) - 2):
        run.probes[101] = replace(run.probes[101], cpu_s=run.probes[101].cpu_s + 1.0)
        run.wait(1)
    assert run.stalls == ()
    for _ in range(120):
        run.probes[101] = replace(run.probes[101], cpu_s=run.probes[101].cpu_s + 1.0)
        run.wait(1)

    (stall,) = run.stalls
    assert stall.ranks[0].waits_in == "compute"


def test_a_process_that_reads_or_moves_on_is_no_stall(run: FakeRun) -> None:
    run.step()
    for line in range(60):
        frames = (StackFrame(function="main", file=SCRIPT, line=line),)
        run.probes[101] = make_probe(101, frames)
        run.wait(1)
        run.probes[101] = replace(make_probe(101), io_bytes=line * 10_000_000)
        run.wait(1)

    assert run.stalls == ()


def test_a_checkpoint_has_ten_times_the_longest_so_far(run: FakeRun) -> None:
    run.step(20, forward=10, checkpoint=3000)
    run.step()
    run.probes[101] = make_probe(101, SAVING)
    run.wait(29)
    assert run.stalls == ()
    run.wait(35)

    assert len(run.stalls) == 1


def test_the_first_checkpoint_has_five_minutes(run: FakeRun) -> None:
    run.step()
    run.probes[101] = make_probe(101, SAVING)
    run.wait(UNKNOWN_S - 5)
    assert run.stalls == ()
    run.wait(120)

    assert len(run.stalls) == 1


def test_an_evaluation_is_known_by_the_line_that_entered_it_before(run: FakeRun) -> None:
    run.step(20, forward=10, evaluation=4000)
    run.write(0, make_spans(["evaluation", SCRIPT, 31, 31, 1, 4_000_000_000]))
    run.step()
    run.wait(39)
    assert run.stalls == ()
    run.wait(60)

    assert len(run.stalls) == 1


def test_rank_0_evaluates_alone_while_the_others_wait(pair: FakeRun) -> None:
    pair.step()
    pair.probes[102] = make_probe(102, REDUCE)
    for second in range(60):
        pair.probes[101] = make_probe(101, cpu_s=second * 1.0)
        pair.wait(1)

    assert pair.stalls == ()


# -- who waits for whom


def test_ranks_in_a_collective_wait_for_the_one_that_is_not(pair: FakeRun) -> None:
    pair.step()
    pair.probes[101] = make_probe(101, REDUCE)
    pair.wait(FLOOR_S + 4)

    (stall,) = pair.stalls
    assert stall.culprits == (1,)
    assert [(one.waits_in, one.where) for one in stall.ranks] == [
        ("collective", "train.py:40"),
        ("lock", "train.py:31"),
    ]


def test_a_rank_whose_process_is_gone_is_waited_for(pair: FakeRun) -> None:
    pair.step()
    pair.probes[101] = make_probe(101, REDUCE)
    gone = ThreadStack(pid=102, thread="", is_main=True, missing="the process has ended")
    pair.probes[102] = ProcessProbe(pid=102, threads=(gone,), is_gone=True)
    pair.wait(FLOOR_S + 4)

    (stall,) = pair.stalls
    assert stall.culprits == (1,)
    assert stall.ranks[1].stacks[0].missing == "the process has ended"


def test_a_rank_that_ended_in_order_while_the_others_wait_is_waited_for(pair: FakeRun) -> None:
    pair.step()
    pair.write(1, make_end(20))
    pair.probes[101] = make_probe(101, REDUCE)
    pair.wait(FLOOR_S + 4)

    assert [stall.culprits for stall in pair.stalls] == [(1,)]


def test_a_process_that_is_gone_alone_is_the_end_of_the_run(run: FakeRun) -> None:
    run.step()
    run.probes[101] = ProcessProbe(pid=101, is_gone=True)
    run.wait(UNKNOWN_S + 60)

    assert run.stalls == ()


def test_of_a_rank_that_was_started_again_the_newest_process_counts(run: FakeRun) -> None:
    run.step()
    run.probes[101] = ProcessProbe(pid=101, is_gone=True)
    head = make_head(pid=201, t_unix_s=1100.0)
    path = run.folder / "rank-0-201.jsonl"
    path.write_text(json.dumps(head) + "\n")
    run.probes[201] = make_probe(201)
    for first in range(0, 400, 20):
        with path.open("a") as file:
            rows = [make_row(first + i) for i in range(20)]
            file.write(json.dumps({"k": "u", "rows": rows}) + "\n")
        run.wait(1)
    assert run.stalls == ()
    run.wait(FLOOR_S + 4)

    assert [[one.pid for one in stall.ranks] for stall in run.stalls] == [[201]]


def test_the_stacks_of_loader_workers_are_taken_where_a_rank_waits_for_them(run: FakeRun) -> None:
    fetching = (StackFrame(function="__getitem__", file=SCRIPT, line=12),)
    run.probes[101] = make_probe(101, LOADING)
    run.probes[201] = make_probe(201, fetching)
    run.children = (201,)
    run.step()
    run.wait(FLOOR_S + 4)

    (rank,) = run.stalls[0].ranks
    assert rank.waits_in == "input"
    assert [(stack.pid, stack.frames) for stack in rank.stacks] == [(101, LOADING), (201, fetching)]


def test_ranks_that_called_different_collectives_have_lost_each_other(tmp_path: Path) -> None:
    calls = [
        replace(make_calls(rank, 2, [*usual(2), call(name, 50, where, world(2))]), pid=101 + rank)
        for rank, (name, where) in enumerate([("all_reduce", FIRST), ("broadcast", ODD)])
    ]
    pair = FakeRun(tmp_path, num_ranks=2, calls=calls)
    pair.step()
    pair.probes = {pid: make_probe(pid, REDUCE) for pid in pair.probes}
    pair.wait(FLOOR_S + 4)

    (stall,) = pair.stalls
    assert stall.desync is not None
    assert stall.culprits == stall.desync.culprits == (1,)
    assert (stall.desync.what, stall.desync.where) == ("operation", ODD)


# -- bad days


def test_damaged_lines_and_a_file_that_grows_fast_lose_nothing_but_themselves(
    run: FakeRun,
) -> None:
    with (run.folder / "rank-0.jsonl").open("a") as file:
        file.write('{"k": "u", "rows": [[1]]}\n{"k": "u"\nnull\n')
    run.write(0, {"k": "u", "rows": [make_row(i) for i in range(2000)]})
    run.write(0, {"k": "u", "rows": [make_row(2000)]}, {"k": "u", "rows": [make_row(2001)]})
    run.num_updates[0] = 2002
    run.watch.take()
    run.wait(FLOOR_S + 4)

    assert [stall.ranks[0].num_steps for stall in run.stalls] == [2002]


def test_a_stall_that_cannot_be_written_is_complained_of_once(run: FakeRun) -> None:
    (run.folder / STALLS).mkdir()
    run.step()
    with pytest.raises(OSError, match="directory"):
        run.wait(FLOOR_S + 4)
    run.wait(60)


def test_a_folder_without_ranks_is_nothing(tmp_path: Path) -> None:
    (tmp_path / "rank-0.jsonl").write_text("half a li")

    assert StallWatch(tmp_path, cwd=None).take() > 0


def test_damaged_stalls_are_counted_and_left_out(run: FakeRun) -> None:
    run.step()
    run.wait(FLOOR_S + 4)
    with (run.folder / STALLS).open("a") as file:
        file.write('{"k": "over", "n": 7, "duration_s": 1.0}\n{"k": "stall", "n": 1}\n{"k": "sta')
    torn = Torn()

    assert len(read_stalls(run.folder, torn)) == 1
    assert torn.count == 3


def test_a_record_that_was_changed_is_named(tmp_path: Path) -> None:
    run = FakeRun(tmp_path, num_ranks=2)
    run.step()
    run.step()
    assert run.watch.changed() == []

    path = tmp_path / "rank-1.jsonl"
    path.write_text(path.read_text().replace('"k": "u"', '"k": "x"'))

    assert run.watch.changed() == ["rank-1.jsonl"]
