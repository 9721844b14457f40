"""Sampling the machine's load, with a clock and processes of our own."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from steptime.watch.host import processes, run_delay
from steptime.watch.host.host_memory import HostMemory
from steptime.watch.host.host_sampler import HostSampler, Readers
from steptime.watch.host.machine_counters import CpuTimes, NetworkBytes, read_cpu_times
from steptime.watch.host.processes import (
    DiskBytes,
    ProcessTimes,
    cpu_by_process,
    disk_growth,
    select_job,
)
from steptime.watch.host.run_delay import RunDelay
from steptime.watch.host.unwatched import Unwatched
from steptime.watch.host.worker_processes import Workers

ROOT = 100


def job_cpu_s(before, after) -> float:
    """CPU time of all processes between two samples [s]."""
    return sum(used.own_s + used.waited_s for used in cpu_by_process(before, after).values())


MIB = 1 << 20


def make_process(
    parent: int = ROOT,
    *,
    started: float = 1.0,
    own_s: float = 0.0,
    waited_s: float = 0.0,
    resident_bytes: int | None = None,
    processor: int | None = None,
) -> ProcessTimes:
    return ProcessTimes(
        parent=parent,
        started=started,
        own_s=own_s,
        waited_s=waited_s,
        resident_bytes=resident_bytes,
        processor=processor,
    )


class FakeMachine:
    """Two cores and a handful of processes; time passes when a test says so."""

    def __init__(self) -> None:
        self.clock_s = 50.0
        self.busy_s = 1000.0
        self.io_wait_s: float | None = None
        self.cost_s = 0.0
        self.scan_cost_s = 0.001
        self.processes: dict[int, ProcessTimes] = {ROOT: make_process(1)}
        self.failure: Exception | None = None
        self.waited_s = 7.0  # children of the process that became `steptime run`
        self.memory = HostMemory()
        self.unwatched: list[Unwatched] = []
        self.workers = Workers()
        self.disk: dict[int, DiskBytes] = {}
        self.parts: dict[int, int] = {}
        self.part_cost_s = 0.001
        self.num_parts = 0
        self.network: NetworkBytes | None = None
        self.clocks_hz: dict[int, float] = {}
        self.delayed: float | None = None
        self.quota: tuple[int, int] | None = None

    def read_processes(self, pids: Collection[int] | None) -> Mapping[int, ProcessTimes]:
        if self.failure is not None:
            raise self.failure
        if pids is None:
            self.cost_s += self.scan_cost_s
            return self.processes
        return {pid: times for pid, times in self.processes.items() if pid in pids}

    def read_disk(self, pid: int) -> DiskBytes | None:
        return self.disk.get(pid)

    def read_part(self, pid: int) -> int | None:
        self.cost_s += self.part_cost_s
        self.num_parts += 1
        return self.parts.get(pid)

    def read_clock(self, cores: Iterable[int]) -> float | None:
        known = [self.clocks_hz[core] for core in cores if core in self.clocks_hz]
        return sum(known) / len(known) if known else None

    def sampler(self, folder: Path) -> HostSampler:
        readers = Readers(
            clock_s=lambda: self.clock_s,
            unix_s=lambda: 1_790_000_000.0 + self.clock_s,
            cost_s=lambda: self.cost_s,
            cpu=lambda: CpuTimes(busy_s=self.busy_s, io_wait_s=self.io_wait_s),
            processes=self.read_processes,
            waited_s=lambda: self.waited_s,
            memory=lambda: self.memory,
            unwatched=lambda layouts: [u for u in self.unwatched if u.pid in layouts],
            workers=lambda pids: self.workers,
            disk=self.read_disk,
            shared_part=self.read_part,
            network=lambda: self.network,
            clock_hz=self.read_clock,
            delayed=lambda job, busy, dt_s: self.delayed,
            quota_periods=lambda: self.quota,
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
    assert line == {"k": "h", **expected}


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


def test_dear_looks_are_taken_so_rarely_that_they_cost_a_small_part_of_a_core(
    tmp_path: Path,
) -> None:
    machine = FakeMachine()
    sampler = machine.sampler(tmp_path)

    def read_slowly(layouts: object) -> list[Unwatched]:
        machine.cost_s += 0.03
        return []

    sampler._readers = replace(sampler._readers, unwatched=read_slowly)
    assert sampler.take() == pytest.approx(0.03 / 0.003)


def test_a_long_run_is_looked_at_more_rarely(tmp_path: Path) -> None:
    machine = FakeMachine()
    sampler = machine.sampler(tmp_path)
    machine.clock_s += 200_000.0
    assert sampler.take() == 10.0


def test_a_machine_with_many_processes_is_looked_through_rarely_and_the_command_each_time(
    tmp_path: Path,
) -> None:
    machine = FakeMachine()
    machine.scan_cost_s = 0.02
    sampler = machine.sampler(tmp_path)
    assert sampler.take() == 1.0
    machine.clock_s += 1.0
    machine.processes = {ROOT: make_process(1, own_s=0.5), 101: make_process(own_s=0.25)}
    sampler.take()
    assert (read_lines(tmp_path)[-1]["job_cores"], machine.cost_s) == (0.5, 0.02)
    machine.clock_s += 10.0
    sampler.take()
    assert read_lines(tmp_path)[-1]["job_cores"] == 0.025
    assert sampler.job == {ROOT, 101}


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


# -- what the command's processes use beside time


def take_twice(machine: FakeMachine, folder: Path, change: Callable[[], None]) -> dict[str, object]:
    """The line after a change and a second."""
    sampler = machine.sampler(folder)
    sampler.take()
    change()
    machine.clock_s += 1.0
    sampler.take()
    return read_lines(folder)[-1]


def test_time_of_loader_workers_is_told_apart(tmp_path: Path) -> None:
    machine = FakeMachine()
    machine.processes = {ROOT: make_process(1), 101: make_process(), 102: make_process()}
    machine.workers = Workers(pids=frozenset({101}), parents=frozenset({ROOT}))

    def change() -> None:
        machine.processes = {
            ROOT: make_process(1, own_s=0.5, resident_bytes=9),
            101: make_process(own_s=0.25, resident_bytes=4),
            102: make_process(own_s=0.125, resident_bytes=2),
        }

    line = take_twice(machine, tmp_path, change)
    assert (line["job_cores"], line["worker_cores"]) == (0.875, 0.25)
    assert (line["job_resident_bytes"], line["worker_resident_bytes"]) == (15, 4)


def test_a_worker_that_ended_counts_by_what_its_parent_waited_for(tmp_path: Path) -> None:
    machine = FakeMachine()
    machine.processes = {ROOT: make_process(1), 101: make_process(own_s=2.0)}
    machine.workers = Workers(pids=frozenset({101}), parents=frozenset({ROOT}))

    def change() -> None:
        machine.processes = {ROOT: make_process(1, own_s=0.5, waited_s=2.25)}
        machine.workers = Workers(parents=frozenset({ROOT}))

    line = take_twice(machine, tmp_path, change)
    assert (line["worker_cores"], line["worker_resident_bytes"]) == (0.25, 0)


def test_without_workers_nothing_is_said_of_them(tmp_path: Path) -> None:
    line = take_twice(FakeMachine(), tmp_path, lambda: None)
    assert not {"worker_cores", "worker_resident_bytes"} & line.keys()


def test_disk_network_and_clock_are_told(tmp_path: Path) -> None:
    machine = FakeMachine()
    machine.io_wait_s, machine.clocks_hz = 3.0, {0: 1e9, 1: 3e9}
    machine.disk = {ROOT: DiskBytes(read=100, written=50)}
    machine.network = NetworkBytes(received=10, sent=20, loopback=30)

    def change() -> None:
        machine.io_wait_s = 3.5
        machine.disk = {ROOT: DiskBytes(read=160, written=51)}
        machine.network = NetworkBytes(received=11, sent=22, loopback=33)
        machine.processes = {ROOT: make_process(1, own_s=0.9, processor=1)}

    line = take_twice(machine, tmp_path, change)
    assert (line["disk_read_bytes"], line["disk_write_bytes"]) == (60, 1)
    assert (line["received_bytes"], line["sent_bytes"], line["loopback_bytes"]) == (1, 2, 3)
    assert (line["io_wait_cores"], line["clock_hz"]) == (0.5, 3e9)


def test_the_clock_is_that_of_cores_where_the_command_is_busy(tmp_path: Path) -> None:
    machine = FakeMachine()
    machine.clocks_hz = {0: 1e9}
    machine.processes = {ROOT: make_process(1, processor=0)}
    assert "clock_hz" not in take_twice(machine, tmp_path, lambda: None)


def test_pages_that_processes_share_count_once(tmp_path: Path) -> None:
    machine = FakeMachine()
    machine.processes = {
        ROOT: make_process(1, resident_bytes=100 * MIB),
        101: make_process(resident_bytes=90 * MIB),
    }
    machine.parts = {ROOT: 60 * MIB, 101: 50 * MIB}

    def grow() -> None:
        machine.processes[101] = make_process(resident_bytes=95 * MIB)
        machine.parts = {ROOT: 60 * MIB, 101: 55 * MIB}

    line = take_twice(machine, tmp_path, grow)
    assert line["job_resident_bytes"] == (60 + 55) * MIB


def test_shared_pages_are_looked_for_as_rarely_as_that_is_dear(tmp_path: Path) -> None:
    machine = FakeMachine()
    machine.part_cost_s = 0.04
    machine.processes = {ROOT: make_process(1, resident_bytes=100 * MIB)}
    machine.processes |= {pid: make_process(resident_bytes=100 * MIB) for pid in range(101, 120)}
    machine.parts = dict.fromkeys(machine.processes, 10 * MIB)
    sampler = machine.sampler(tmp_path)
    for _ in range(200):
        assert sampler.take() == 1.0
        machine.clock_s += 1.0
    assert machine.num_parts * 0.04 <= 0.05 + 200 * 0.001 + 0.04
    assert machine.num_parts >= 5


def test_a_process_alone_and_a_very_large_one_are_not_looked_at_closer(tmp_path: Path) -> None:
    machine = FakeMachine()
    machine.processes = {ROOT: make_process(1, resident_bytes=100 * MIB)}
    take_twice(machine, tmp_path, lambda: None)
    assert machine.num_parts == 0
    machine.processes[101] = make_process(resident_bytes=9000 * MIB)
    line = take_twice(machine, tmp_path, lambda: None)
    assert line["job_resident_bytes"] == 9100 * MIB
    assert machine.num_parts == 1  # the smaller one


# -- the command's processes


def test_the_job_is_the_root_with_all_below_it() -> None:
    machine = {1: make_process(0), ROOT: make_process(1), 101: make_process(ROOT)}
    machine |= {102: make_process(101), 200: make_process(1)}
    assert set(select_job(machine, ROOT, {})) == {ROOT, 101, 102}


def test_what_samples_is_not_in_the_job_though_the_root_started_it() -> None:
    machine = {ROOT: make_process(1), 101: make_process(ROOT), os.getpid(): make_process(ROOT)}
    assert set(select_job(machine, ROOT, {})) == {ROOT, 101}


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


# -- its bytes


def test_bytes_of_a_child_that_ended_count_once() -> None:
    before = {ROOT: make_process(1), 101: make_process()}
    known = {ROOT: DiskBytes(read=10, written=0), 101: DiskBytes(read=500, written=7)}
    now = {ROOT: DiskBytes(read=540, written=9)}
    found = disk_growth(before, {ROOT: make_process(1)}, known, now)
    assert found == DiskBytes(read=30, written=2)


def test_bytes_of_a_new_process_count_whole_and_nothing_is_below_zero() -> None:
    before = {ROOT: make_process(1)}
    after = {ROOT: make_process(1), 101: make_process()}
    now = {ROOT: DiskBytes(read=3, written=0), 101: DiskBytes(read=5, written=6)}
    found = disk_growth(before, after, {ROOT: DiskBytes(read=4, written=0)}, now)
    assert found == DiskBytes(read=5, written=6)


def test_bytes_that_no_process_tells_are_not_known() -> None:
    before = {ROOT: make_process(1)}
    assert disk_growth(before, before, {ROOT: DiskBytes(read=1, written=1)}, {}) is None


# -- this machine


@pytest.mark.parametrize("read", [processes.read_proc, processes.read_psutil])
def test_the_readers_see_this_process_and_its_parent(
    read: Callable[..., dict[int, ProcessTimes]],
) -> None:
    if read is processes.read_proc and not Path("/proc/self/stat").exists():
        pytest.skip("no /proc on this system")
    own = psutil.Process()
    seen = read()[own.pid]
    assert seen.parent == own.ppid()
    assert 0 < seen.own_s <= sum(own.cpu_times()[:2]) + 0.02
    assert seen.resident_bytes is not None
    assert 0.5 < seen.resident_bytes / own.memory_info().rss < 2
    assert set(read([own.pid])) == {own.pid}


def test_busy_time_of_the_machine_leaves_idle_and_waiting_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    times = psutil.cpu_times()
    fields = dict.fromkeys(times._fields, 0.0) | {"user": 5.0, "idle": 90.0, "system": 2.0}
    monkeypatch.setattr(psutil, "cpu_times", lambda: type(times)(**fields))
    assert read_cpu_times().busy_s == 7.0


def test_a_process_that_ends_while_it_is_read_is_left_out() -> None:
    assert processes.read_proc([4194305]) == {}
    assert processes.read_disk_bytes(4194305) is None
    assert processes.read_shared_part(4194305) is None


# -- waits for a core


def test_a_line_says_for_which_part_of_the_time_a_thread_waited_for_a_core(tmp_path: Path) -> None:
    machine = FakeMachine()
    sampler = machine.sampler(tmp_path)
    for delayed in (0.5, 0.123456, None):
        machine.delayed = delayed
        sampler.take()
        machine.clock_s += 1.0
    lines = read_lines(tmp_path)[1:]
    assert [line.get("delayed_fraction") for line in lines] == [0.1235, None]


def test_a_line_says_in_how_many_periods_the_quota_stopped_the_command(tmp_path: Path) -> None:
    machine = FakeMachine()
    sampler = machine.sampler(tmp_path)
    for quota in (None, (100, 90), (110, 97), (110, 97), (120, 97)):
        machine.quota = quota
        sampler.take()
        machine.clock_s += 1.0
    found = [line.get("stopped_fraction") for line in read_lines(tmp_path)[1:]]
    assert found == [None, 0.7, None, 0.0]


def test_the_most_delayed_thread_of_all_processes_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    waited = {(7, 7): 0, (7, 8): 0, (9, 9): 0, (9, 10): 0}
    monkeypatch.setattr(run_delay, "read_delay", lambda pid, thread: waited.get((pid, thread)))
    monkeypatch.setattr(run_delay, "_threads", lambda pid: [pid, pid + 1])
    follower = RunDelay()
    assert follower.take({7, 9}, {7}, 1.0) is None  # nothing to compare with
    waited |= {(7, 7): 100_000_000, (7, 8): 400_000_000, (9, 9): 200_000_000, (9, 10): 10**12}
    assert follower.take({7, 9, 11}, {7}, 2.0) == pytest.approx(0.2)
    assert follower.take({9}, set(), 1.0) == 0.0
    waited[9, 9] += 5_000_000_000
    assert follower.take({9}, set(), 1.0) == 1.0
    assert follower.take({11}, set(), 1.0) is None


def test_this_thread_has_waited_for_a_core_or_nobody_counts() -> None:
    found = run_delay.read_delay(os.getpid(), os.getpid())
    assert found is None or found >= 0
    assert run_delay.read_delay(os.getpid(), 1 << 30) is None
