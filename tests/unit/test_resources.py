"""Cores under affinity and a container's quota, in folders made up for it."""

import os
import sys

import pytest

from steptime.tune.trials.facts import resources

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it reads the kernel's files")


def put(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def mount(root, group):
    """This process's group, and where the kernel shows groups of its version."""
    put(root / "proc/self/cgroup", group + "\n")
    _, controllers, _ = group.split(":", 2)
    folder = root / "sys/fs/cgroup" / ("cpu" if controllers else "")
    name = "cgroup" if controllers else "cgroup2"
    line = f"9 1 0:5 / {folder} rw - {name} {name} rw,{controllers or 'nsdelegate'}\n"
    put(root / "proc/self/mountinfo", line)


@pytest.fixture
def eight_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))


@pytest.mark.usefixtures("eight_cores")
def test_without_a_quota_the_allowed_cores_count(tmp_path):
    assert resources.count_cores(root=tmp_path) == 8


@pytest.mark.usefixtures("eight_cores")
def test_a_quota_counts_as_that_many_cores_rounded_up(tmp_path):
    mount(tmp_path, "0::/pod/one")
    put(tmp_path / "sys/fs/cgroup/pod/one/cpu.max", "max 100000\n")
    put(tmp_path / "sys/fs/cgroup/pod/cpu.max", "250000 100000\n")

    assert resources.count_cores(root=tmp_path) == 3


@pytest.mark.usefixtures("eight_cores")
def test_the_mount_itself_is_the_group_where_the_path_is_the_hosts(tmp_path):
    mount(tmp_path, "4:cpu,cpuacct:/../of/the/host")
    put(tmp_path / "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "400000\n")
    put(tmp_path / "sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n")

    assert resources.count_cores(root=tmp_path) == 4


@pytest.mark.usefixtures("eight_cores")
def test_a_quota_of_minus_one_is_none(tmp_path):
    mount(tmp_path, "4:cpu:/")
    put(tmp_path / "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n")
    put(tmp_path / "sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n")

    assert resources.count_cores(root=tmp_path) == 8


@pytest.mark.usefixtures("eight_cores")
def test_cores_that_share_one_are_counted_once(tmp_path):
    for core in range(8):
        siblings = f"{core % 4},{core % 4 + 4}\n"
        put(tmp_path / f"sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list", siblings)

    assert resources.count_physical_cores(root=tmp_path) == 4


@pytest.mark.usefixtures("eight_cores")
def test_no_more_physical_cores_than_the_quota_gives(tmp_path):
    mount(tmp_path, "0::/")
    put(tmp_path / "sys/fs/cgroup/cpu.max", "100000 100000\n")
    put(tmp_path / "sys/devices/system/cpu/cpu0/topology/thread_siblings_list", "0\n")
    put(tmp_path / "sys/devices/system/cpu/cpu1/topology/thread_siblings_list", "1\n")

    assert resources.count_physical_cores(root=tmp_path) == 1


def test_there_is_memory_left_on_this_machine():
    assert resources.read_available_bytes() > 0
