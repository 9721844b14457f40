"""What the kernel's files say about memory, with files of our own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from steptime.watch.host.host_memory import HostMemory, memory_reader, read_group_limit

PAGE = os.sysconf("SC_PAGE_SIZE")
MIB = 1 << 20

V1_STAT = f"inactive_file 1\ntotal_inactive_file {30 * MIB}\ntotal_active_file {10 * MIB}\n"
V2_STAT = f"anon 5\ninactive_file {30 * MIB}\nactive_file {10 * MIB}\n"


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


class FakeKernel:
    """/proc of a machine with 2 GiB left; groups are mounted where a test says so."""

    def __init__(self, folder: Path) -> None:
        self.proc = folder / "proc"
        self.mounted = folder / "sys" / "fs" / "cgroup"
        write(self.proc, vmstat="nr_free 5\npswpin 3\noom_kill 9\n")
        write(self.proc, meminfo=f"MemTotal: 9 kB\nMemAvailable: {2 << 20} kB\n")
        write(self.proc / "100")
        write(self.proc / "self")

    def mount(self, kind: str, path: str, *, root: str = "/") -> None:
        """The group of process 100, and the mount of its hierarchy."""
        version, controller = ("0", "") if kind == "cgroup2" else ("4", "memory")
        write(self.proc / "100", cgroup=f"8:cpu:/x\n{version}:{controller}:{path}\n")
        options = controller or "nsdelegate"
        line = f"35 31 0:32 {root} {self.mounted} rw,relatime - {kind} cgroup rw,{options}\n"
        write(self.proc / "self", mountinfo="22 1 0:1 / / rw - ext4 root rw\nshort\n" + line)

    def read(self) -> HostMemory:
        return memory_reader(100, proc=self.proc)()


def test_without_groups_the_machine_itself_says_it(tmp_path: Path) -> None:
    found = FakeKernel(tmp_path).read()
    assert found == HostMemory(swap_in_bytes=3 * PAGE, available_bytes=2 << 30, oom_kills=9)


def test_a_group_of_version_2_has_its_own_limit_and_kills(tmp_path: Path) -> None:
    kernel = FakeKernel(tmp_path)
    kernel.mount("cgroup2", "/user/job")
    job = kernel.mounted / "user" / "job"
    write(job, memory__max=str(200 * MIB), memory__current=str(150 * MIB), memory__stat=V2_STAT)
    write(job, memory__events="low 0\noom 1\noom_kill 4\n")
    found = kernel.read()
    assert (found.available_bytes, found.oom_kills) == (90 * MIB, 4)


def test_a_group_of_version_1_has_its_own_limit_and_kills(tmp_path: Path) -> None:
    kernel = FakeKernel(tmp_path)
    kernel.mount("cgroup", "/job")
    write(kernel.mounted / "job", memory__limit_in_bytes=str(200 * MIB), memory__stat=V1_STAT)
    write(kernel.mounted / "job", memory__usage_in_bytes=str(150 * MIB))
    write(kernel.mounted / "job", memory__oom_control="oom_kill_disable 0\noom_kill 5\n")
    found = kernel.read()
    assert (found.available_bytes, found.oom_kills) == (90 * MIB, 5)


def test_the_narrowest_group_on_the_way_up_counts(tmp_path: Path) -> None:
    kernel = FakeKernel(tmp_path)
    kernel.mount("cgroup2", "/pod/job")
    write(kernel.mounted / "pod", memory__max=str(100 * MIB), memory__current=str(80 * MIB))
    write(kernel.mounted / "pod" / "job", memory__max="max", memory__current=str(MIB))
    assert kernel.read().available_bytes == 20 * MIB
    assert read_group_limit(100, proc=kernel.proc) == 100 * MIB


def test_without_a_group_there_is_no_limit(tmp_path: Path) -> None:
    assert read_group_limit(100, proc=FakeKernel(tmp_path).proc) is None


@pytest.mark.parametrize("limit", ["max", "9223372036854771712"])
def test_a_group_without_a_limit_leaves_what_the_machine_has(tmp_path: Path, limit: str) -> None:
    kernel = FakeKernel(tmp_path)
    kernel.mount("cgroup2", "/job")
    write(kernel.mounted / "job", memory__max=limit, memory__current=str(MIB))
    found = kernel.read()
    assert (found.available_bytes, found.oom_kills) == (2 << 30, 9)


def test_in_a_container_the_mounted_folder_is_the_group(tmp_path: Path) -> None:
    kernel = FakeKernel(tmp_path)
    kernel.mount("cgroup", "/docker/abc", root="/docker/abc")
    write(kernel.mounted, memory__limit_in_bytes=str(3 * MIB), memory__usage_in_bytes=str(MIB))
    assert kernel.read().available_bytes == 2 * MIB


def test_a_path_of_the_host_that_is_not_mounted_leads_to_the_mounted_folder(
    tmp_path: Path,
) -> None:
    kernel = FakeKernel(tmp_path)
    kernel.mount("cgroup", "/docker/abc", root="/kubepods/xyz")
    write(kernel.mounted, memory__limit_in_bytes=str(3 * MIB), memory__usage_in_bytes=str(MIB))
    assert kernel.read().available_bytes == 2 * MIB


def test_more_used_than_allowed_leaves_nothing(tmp_path: Path) -> None:
    kernel = FakeKernel(tmp_path)
    kernel.mount("cgroup2", "/")
    write(kernel.mounted, memory__max=str(MIB), memory__current=str(2 * MIB))
    assert kernel.read().available_bytes == 0


def test_what_the_kernel_does_not_say_is_not_known(tmp_path: Path) -> None:
    kernel = FakeKernel(tmp_path)
    write(kernel.proc, vmstat="nr_free 5\nbroken\n\n", meminfo="MemAvailable: ? kB\n")
    assert kernel.read() == HostMemory()


def test_where_there_is_no_proc_psutil_is_asked(tmp_path: Path) -> None:
    found = memory_reader(100, proc=tmp_path / "none")()
    assert (found.available_bytes or 0) > 0
    assert found.oom_kills is None
