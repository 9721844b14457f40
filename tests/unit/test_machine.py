"""The whole machine, one look, from files of a kernel that the tests write."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from steptime.watch.host.machine_counters import (
    NetworkBytes,
    clock_reader,
    network_reader,
    read_cpu_times,
)
from steptime.watch.host.processes import read_disk_bytes, read_shared_part
from steptime.watch.host.worker_processes import WorkerFinder, Workers

NET_HEAD = "Inter-| Receive | Transmit\n face |bytes packets | bytes packets\n"


def write_net(proc: Path, **received_and_sent: tuple[int, int]) -> None:
    (proc / "net").mkdir(parents=True, exist_ok=True)
    rows = [
        f"{name:>6}: {received} 1 0 0 0 0 0 0 {sent} 1 0 0 0 0 0 0\n"
        for name, (received, sent) in received_and_sent.items()
    ]
    (proc / "net" / "dev").write_text(NET_HEAD + "".join(rows))


def make_interface(sys_folder: Path, name: str, *links: str) -> None:
    folder = sys_folder / "class" / "net" / name
    folder.mkdir(parents=True)
    for link in links:
        (folder / link).mkdir()


# -- network


def test_traffic_over_hardware_counts_and_what_passes_it_on_does_not(tmp_path: Path) -> None:
    for name, links in {
        "eth0": ["device"],
        "docker0": ["lower_veth1"],
        "veth1": [],
        "bond0": ["lower_eth0"],
    }.items():
        make_interface(tmp_path / "sys", name, *links)
    counts = {"lo": (7, 7), "eth0": (100, 10), "docker0": (50, 5)}
    write_net(tmp_path / "proc", **counts, veth1=(50, 5), bond0=(100, 10))
    read = network_reader(proc=tmp_path / "proc", sys_folder=tmp_path / "sys")
    assert read() == NetworkBytes(received=100, sent=10, loopback=7)


def test_in_a_container_all_that_stands_on_no_other_counts(tmp_path: Path) -> None:
    make_interface(tmp_path / "sys", "eth0")
    make_interface(tmp_path / "sys", "vlan7", "lower_eth0")
    write_net(tmp_path / "proc", eth0=(100, 10), vlan7=(60, 6))
    read = network_reader(proc=tmp_path / "proc", sys_folder=tmp_path / "sys")
    assert read() == NetworkBytes(received=100, sent=10, loopback=0)
    write_net(tmp_path / "proc", eth0=(100, 10), eth1=(5, 5))
    assert read() == NetworkBytes(received=105, sent=15, loopback=0)


def test_a_kernel_that_tells_no_traffic_is_not_asked_for_more(tmp_path: Path) -> None:
    assert network_reader(proc=tmp_path, sys_folder=tmp_path)() is None


# -- clocks


def write_scaling(sys_folder: Path, *khz: str) -> None:
    for core, text in enumerate(khz):
        folder = sys_folder / "devices" / "system" / "cpu" / f"cpu{core}" / "cpufreq"
        folder.mkdir(parents=True)
        (folder / "scaling_cur_freq").write_text(text)


def test_the_clock_is_the_mean_of_the_cores_asked_for(tmp_path: Path) -> None:
    write_scaling(tmp_path, "1000000\n", "3000000\n", "9000000\n", "<unknown>\n")
    read = clock_reader(proc=tmp_path, sys_folder=tmp_path)
    assert read([0, 1]) == pytest.approx(2e9)
    assert read([1, 3, 77]) == pytest.approx(3e9)
    assert read([]) is None


def test_of_many_cores_eight_are_asked(tmp_path: Path) -> None:
    write_scaling(tmp_path, *["1000000\n" for _ in range(64)])
    folder = tmp_path / "devices" / "system" / "cpu" / "cpu1" / "cpufreq"
    (folder / "scaling_cur_freq").write_text("64000000\n")
    assert clock_reader(proc=tmp_path, sys_folder=tmp_path)(range(64)) == pytest.approx(1e9)


def write_cpuinfo(proc: Path, flags: str) -> None:
    cores = [f"processor\t: {n}\nflags\t\t: {flags}\ncpu MHz\t\t: {2000 + n}.5\n" for n in (0, 1)]
    (proc / "cpuinfo").write_text("\n".join(cores))


def test_a_clock_that_the_processor_counts_is_read_where_there_is_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    write_cpuinfo(tmp_path, "fpu aperfmperf sse")
    assert clock_reader(proc=tmp_path, sys_folder=tmp_path)([1]) == pytest.approx(2.0015e9)


def test_a_clock_that_is_printed_on_the_box_is_none(tmp_path: Path) -> None:
    write_cpuinfo(tmp_path, "fpu hypervisor")
    assert clock_reader(proc=tmp_path, sys_folder=tmp_path)([0]) is None


# -- this machine


def test_this_machine_has_spent_time() -> None:
    assert read_cpu_times().busy_s > 0


def test_this_process_has_bytes_and_a_part_of_the_pages() -> None:
    if not Path("/proc/self/io").exists():
        pytest.skip("no /proc on this system")
    found, part = read_disk_bytes(os.getpid()), read_shared_part(os.getpid())
    assert found is not None
    assert found.read >= 0
    assert part is None or part > 1 << 20


# -- loader workers


def write_worker(folder: Path, name: str, *pids: int) -> None:
    heads = [{"k": "head", "schema": 1, "pid": pid, "ppid": 100, "worker": 0} for pid in pids]
    with (folder / name).open("a") as file:
        file.write("".join(json.dumps(head) + "\n" for head in heads) + '{"k": "w", "pi')


def test_workers_are_found_by_what_they_wrote(tmp_path: Path) -> None:
    finder = WorkerFinder(tmp_path)
    assert finder.find({100, 140}) == Workers()
    write_worker(tmp_path, "worker-100-0.jsonl", 140)
    assert finder.find({100, 140}) == Workers(pids=frozenset({140}), parents=frozenset({100}))


def test_their_successors_in_the_same_file_are_found_and_the_dead_forgotten(tmp_path: Path) -> None:
    finder = WorkerFinder(tmp_path)
    write_worker(tmp_path, "worker-100-0.jsonl", 140)
    finder.find({100, 140})
    with (tmp_path / "worker-100-0.jsonl").open("a") as file:
        file.write("\n")
    write_worker(tmp_path, "worker-100-0.jsonl", 150)
    assert finder.find({100, 150}).pids == {150}


def test_files_are_let_be_once_every_process_is_known(tmp_path: Path) -> None:
    finder = WorkerFinder(tmp_path)
    for _ in range(10):
        finder.find({100})
    write_worker(tmp_path, "worker-100-0.jsonl", 100)
    assert finder.find({100}).pids == frozenset()
    assert finder.find({100, 140}).pids == {100}


def test_what_is_no_line_of_a_worker_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "worker-1-0.jsonl").write_text('{"k": "head"}\n["head"]\n\x00"head"\n')
    (tmp_path / "worker-2-0.jsonl").mkdir()
    assert WorkerFinder(tmp_path).find({100}) == Workers()
    assert WorkerFinder(tmp_path / "gone").find({100}) == Workers()
