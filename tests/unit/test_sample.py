"""Sampling the machine's load, with a clock and processes of our own."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import psutil
import pytest

from steptime.measure import sample
from steptime.measure.host_memory import HostMemory
from steptime.measure.sample import HostSampler, ProcessTimes, Readers, job_cpu_s, select_job
from steptime.measure.unwatched import Unwatched

ROOT = 100


def make_process(
    parent: int = ROOT, *, started: float = 1.0, own_s: float = 0.0, waited_s: float = 0.0
) -> ProcessTimes:
    return ProcessTimes(parent=parent, started=started, own_s=own_s, waited_s=waited_s)


class FakeMachine:
    """Two cores and a handful of processes; time passes when a test says so."""

    def __init__(self) -> None:
        self.clock_s = 50.0
        self.busy_s = 1000.0
        self.cost_s = 0.0
        self.processes: dict[int, ProcessTimes] = {ROOT: make_process(1)}
        self.failure: Exception | None = None
        self.waited_s = 7.0  # children of the process that became `steptime run`
        self.memory = HostMemory()
        self.unwatched: list[Unwatched] = []

    def read_processes(self) -> Mapping[int, ProcessTimes]:
        self.cost_s += 0.001
        if self.failure is not None:
            raise self.failure
        return self.processes

    def sampler(self, folder: Path) -> HostSampler:
        readers = Readers(
            clock_s=lambda: self.clock_s,
            unix_s=lambda: 1_790_000_000.0 + self.clock_s,
            cost_s=lambda: self.cost_s,
            busy_s=lambda: self.busy_s,
            processes=self.read_processes,
            waited_s=lambda: self.waited_s,
            memory=lambda: self.memory,
            unwatched=lambda layouts: [u for u in self.unwatched if u.pid in layouts],
        )
        path = folder / "host.jsonl"
        return HostSampler(path, root_pid=ROOT, num_cores=2, readers=readers)


def read_lines(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "host.jsonl").read_text().splitlines()]


# -- the lines


def test_a_line_holds_busy_cores_and_those_of_the_command(tmp_path: Path) -> None:
    machine = FakeMachine()
    sampler = machine.sampler(tmp_path)
    sampler.take()
    machine.clock_s += 2.0
    machine.busy_s += 3.0
    machine.processes = {ROOT: make_process(1, own_s=1.0)}
    sampler.take()
    head, line = read_lines(tmp_path)
    assert head == {"k": "head", "schema": 1, "num_cores": 2}
    expected = {"t_unix_s": 1_790_000_052.0, "dt_s": 2.0, "busy_cores": 1.5, "job_cores": 0.5}
    unknown = dict.fromkeys(("swap_in_bytes", "available_bytes", "oom_kills"))
    assert line == {"k": "h", **expected, **unknown}


def test_swapping_is_counted_from_look_to_look_and_kills_from_the_first(tmp_path: Path) -> None:
    machine = FakeMachine()
    sampler = machine.sampler(tmp_path)
    for swapped, left, kills in ((4096, 900, 3), (12288, 500, 4), (12288, 700, 5)):
        machine.memory = HostMemory(swap_in_bytes=swapped, available_bytes=left, oom_kills=kills)
        sampler.take()
        machine.clock_s += 1.0
    lines = read_lines(tmp_path)[1:]
    assert [line["swap_in_bytes"] for line in lines] == [8192, 0]
    assert [line["available_bytes"] for line in lines] == [500, 700]
    assert [line["oom_kills"] for line in lines] == [1, 2]


def test_the_last_look_counts_what_the_command_used_since_the_one_before(tmp_path: Path) -> None:
    machine = FakeMachine()
    machine.processes = {ROOT: make_process(1, own_s=1.0), 101: make_process(own_s=0.5)}
    sampler = machine.sampler(tmp_path)
    sampler.take()
    machine.processes = {}
    machine.waited_s += 1.5 + 0.4
    machine.clock_s += 0.5
    sampler.take_last()
    assert read_lines(tmp_path)[-1]["job_cores"] == pytest.approx(0.8)


def test_a_last_look_without_one_before_leaves_no_line(tmp_path: Path) -> None:
    FakeMachine().sampler(tmp_path).take_last()
    assert [line["k"] for line in read_lines(tmp_path)] == ["head"]


def test_a_last_look_after_the_root_was_seen_no_more_leaves_its_line(tmp_path: Path) -> None:
    machine = FakeMachine()
    sampler = machine.sampler(tmp_path)
    machine.processes = {}
    sampler.take()
    machine.clock_s += 1.0
    sampler.take_last()
    assert read_lines(tmp_path)[-1]["job_cores"] == 0.0


def test_a_python_without_a_guest_has_a_line(tmp_path: Path) -> None:
    machine = FakeMachine()
    machine.unwatched = [Unwatched(pid=ROOT, name="python3.11")]
    machine.sampler(tmp_path).take()
    assert read_lines(tmp_path)[1:] == [{"k": "g", "pid": ROOT, "name": "python3.11"}]


def test_a_look_is_due_each_second(tmp_path: Path) -> None:
    assert FakeMachine().sampler(tmp_path).take() == 1.0


def test_dear_looks_are_taken_so_rarely_that_they_cost_half_a_hundredth(tmp_path: Path) -> None:
    machine = FakeMachine()
    sampler = machine.sampler(tmp_path)

    def read_slowly() -> Mapping[int, ProcessTimes]:
        machine.cost_s += 0.04
        return machine.processes

    machine.read_processes = read_slowly  # type: ignore[method-assign]
    assert machine.sampler(tmp_path).take() == pytest.approx(0.04 / 0.005)
    assert sampler.num_failures == 0


@pytest.mark.parametrize(
    "failure", [PermissionError("no"), psutil.AccessDenied(1), ValueError("x"), IndexError("y")]
)
def test_a_look_that_fails_is_counted_and_the_next_one_works(
    tmp_path: Path, failure: Exception
) -> None:
    machine = FakeMachine()
    sampler = machine.sampler(tmp_path)
    machine.failure = failure
    assert sampler.take() == 1.0
    machine.failure = None
    sampler.take()
    machine.clock_s += 1.0
    sampler.take()
    assert sampler.num_failures == 1
    assert [line["k"] for line in read_lines(tmp_path)] == ["head", "h"]


def test_a_deleted_folder_is_counted_and_not_made_again(tmp_path: Path) -> None:
    machine = FakeMachine()
    sampler = machine.sampler(tmp_path / "gone")
    sampler.take()
    assert sampler.num_failures == 1
    assert not (tmp_path / "gone").exists()


def test_the_head_is_written_late_rather_than_never(tmp_path: Path) -> None:
    machine = FakeMachine()
    folder = tmp_path / "late"
    sampler = machine.sampler(folder)
    sampler.take()
    folder.mkdir()
    machine.clock_s += 1.0
    sampler.take()
    assert [line["k"] for line in read_lines(folder)] == ["head", "h"]


def test_a_clock_that_stands_still_costs_the_line_only(tmp_path: Path) -> None:
    machine = FakeMachine()
    sampler = machine.sampler(tmp_path)
    sampler.take()
    sampler.take()
    assert sampler.num_failures == 1
    assert len(read_lines(tmp_path)) == 1


# -- the command's processes


def test_the_job_is_the_root_with_all_below_it() -> None:
    machine = {1: make_process(0), ROOT: make_process(1), 101: make_process(ROOT)}
    machine |= {102: make_process(101), 200: make_process(1)}
    assert set(select_job(machine, ROOT, {})) == {ROOT, 101, 102}


def test_an_orphan_and_its_children_stay_in_the_job() -> None:
    known = {101: make_process(ROOT)}
    machine = {101: make_process(1), 102: make_process(101), 1: make_process(0)}
    assert set(select_job(machine, ROOT, known)) == {101, 102}


def test_a_stranger_with_the_id_of_a_dead_process_is_not_in_the_job() -> None:
    known = {101: make_process(ROOT, started=1.0)}
    machine = {ROOT: make_process(1), 101: make_process(1, started=9.0)}
    assert set(select_job(machine, ROOT, known)) == {ROOT}


# -- its CPU time


def test_time_is_what_each_process_used_in_between() -> None:
    before = {ROOT: make_process(1, own_s=1.0), 101: make_process(own_s=2.0)}
    after = {ROOT: make_process(1, own_s=1.5), 101: make_process(own_s=3.0)}
    assert job_cpu_s(before, after) == pytest.approx(1.5)


def test_a_new_process_counts_whole() -> None:
    after = {ROOT: make_process(1), 101: make_process(own_s=0.4, waited_s=0.2)}
    assert job_cpu_s({ROOT: make_process(1)}, after) == pytest.approx(0.6)


def test_a_child_that_ended_counts_from_the_look_before_to_its_end() -> None:
    before = {ROOT: make_process(1), 101: make_process(own_s=5.0)}
    after = {ROOT: make_process(1, waited_s=5.3)}
    assert job_cpu_s(before, after) == pytest.approx(0.3)


def test_a_child_that_began_and_ended_in_between_counts() -> None:
    after = {ROOT: make_process(1, waited_s=0.7)}
    assert job_cpu_s({ROOT: make_process(1)}, after) == pytest.approx(0.7)


def test_a_branch_that_ended_counts_once_at_the_ancestor_that_is_left() -> None:
    before = {ROOT: make_process(1), 101: make_process(own_s=1.0)}
    before[102] = make_process(101, own_s=4.0)
    after = {ROOT: make_process(1, waited_s=5.5)}
    assert job_cpu_s(before, after) == pytest.approx(0.5)


def test_time_of_a_child_that_nobody_waits_for_is_lost_and_never_negative() -> None:
    before = {ROOT: make_process(1, own_s=1.0), 101: make_process(own_s=5.0)}
    after = {ROOT: make_process(1, own_s=1.2)}
    assert job_cpu_s(before, after) == pytest.approx(0.2)


def test_an_id_used_again_is_a_new_process() -> None:
    before = {ROOT: make_process(1), 101: make_process(started=1.0, own_s=5.0)}
    after = {ROOT: make_process(1, waited_s=5.0), 101: make_process(started=9.0, own_s=0.1)}
    assert job_cpu_s(before, after) == pytest.approx(0.1)


# -- this machine


@pytest.mark.parametrize("read", [sample._read_proc, sample._read_psutil])
def test_the_readers_see_this_process_and_its_parent(
    read: Callable[[], dict[int, ProcessTimes]],
) -> None:
    if read is sample._read_proc and not Path("/proc/self/stat").exists():
        pytest.skip("no /proc on this system")
    own = psutil.Process()
    seen = read()[own.pid]
    assert seen.parent == own.ppid()
    assert 0 < seen.own_s <= sum(own.cpu_times()[:2]) + 0.02


def test_busy_time_of_the_machine_leaves_idle_and_waiting_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    times = psutil.cpu_times()
    fields = dict.fromkeys(times._fields, 0.0) | {"user": 5.0, "idle": 90.0, "system": 2.0}
    monkeypatch.setattr(psutil, "cpu_times", lambda: type(times)(**fields))
    assert sample._busy_s() == 7.0


def test_a_process_that_ends_while_it_is_read_is_left_out() -> None:
    assert sample._read_stat("4194305") is None
