"""The inventory of machines made up in a folder: large, small, boxed in, and silent ones."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from steptime.core.codec import from_json, to_json
from steptime.machine.inventory import read_inventory
from steptime.machine.values.inventory_values import Cache, Inventory
from unit.machines import FakeNvml, Tree

MIB, GIB = 1 << 20, 1 << 30


def read(tree: Tree, nvml: Any = "no_binding", **options: Any) -> Inventory:
    return read_inventory(
        tree.kernel.root, load_nvml=lambda: nvml, environment={}, kernel=tree.kernel, **options
    )


def links_of(found: Inventory) -> dict[tuple[str, str], str]:
    return {(link.first, link.second): link.kind for link in found.links}


# -- processors and memory


def test_hyper_threads_share_a_core_and_cores_share_a_cache(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.cores(8, threads=2)
    cpu = read(tree).cpu

    assert (cpu.model, cpu.num_threads, cpu.num_cores, cpu.num_sockets) == ("Xeon Gold", 8, 4, 1)
    assert cpu.caches == (
        Cache(level=1, kind="data", size_bytes=48 << 10, num=4),
        Cache(level=3, kind="unified", size_bytes=32 * MIB, num=1),
    )


def test_instruction_sets_that_training_uses_are_kept(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.cores(2)
    cpu = read(tree).cpu

    assert {"amx_bf16", "avx512_bf16"} <= set(cpu.flags)
    assert "fpu" not in cpu.flags
    assert cpu.is_virtual is True


def test_a_machine_of_one_core_is_one(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.cores(1)
    cpu = read(tree).cpu

    assert (cpu.num_threads, cpu.num_cores, cpu.num_sockets) == (1, 1, 1)


def test_nodes_have_their_cores_memory_and_distances(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    for node, cpus, distances in ((0, "0-3", "10 21"), (1, "4-7", "21 10")):
        here = f"devices/system/node/node{node}"
        tree.sys(f"{here}/cpulist", cpus + "\n")
        tree.sys(f"{here}/distance", distances + "\n")
        tree.sys(f"{here}/meminfo", f"Node {node} MemTotal:       {64 << 20} kB\n")
    tree.sys("devices/system/node/online", "0-1\n")

    first, second = read(tree).numa

    assert (first.node, first.cpus, first.memory_bytes) == (0, "0-3", 64 * GIB)
    assert second.distances == (21, 10)


def test_without_proc_and_sys_gaps_are_named_and_nothing_fails(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.forget()
    found = read(tree)

    assert found.cpu.num_threads >= 1
    assert found.ram.total_bytes is not None
    assert {"cpu_model", "caches", "numa", "disks", "mounts", "network"} <= set(found.missing)
    assert found.gpus == ()


# -- GPUs


def test_gpus_are_told_with_their_driver_and_the_cores_near_them(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.pci("0000:3b:00.0", "pci0000:3a/0000:3a:00.0", numa_node="1", local_cpulist="4-7")
    found = read(tree, FakeNvml("0000:3b:00.0"))

    (gpu,) = found.gpus
    assert (gpu.name, gpu.memory_bytes, gpu.bus_id) == (
        "NVIDIA H100 80GB HBM3",
        80 * GIB,
        "0000:3b:00.0",
    )
    assert (gpu.used_bytes, gpu.busy_fraction) == (GIB, 0.97)
    assert (gpu.numa_node, gpu.cpus, gpu.max_pcie_width, gpu.pcie_width) == (1, "4-7", 16, None)
    assert (found.nvidia_driver, found.cuda_driver) == ("570.86.15", "12.8")


def test_gpus_behind_switches_reach_each_other_with_all_their_links(tmp_path: Path) -> None:
    nvml = FakeNvml("0000:01:00.0", "0000:02:00.0", "0000:03:00.0", nvlinks=18)

    found = links_of(read(Tree(tmp_path), nvml))

    assert set(found.values()) == {"NV18"}
    assert len(found) == 3


def test_links_without_a_switch_are_counted_by_the_gpu_at_their_end(tmp_path: Path) -> None:
    nvml = FakeNvml("0000:01:00.0", "0000:02:00.0", "0000:03:00.0", level=30)
    nvml.direct = {0: ["00000000:02:00.0"] * 4, 1: ["00000000:01:00.0"] * 4}

    found = links_of(read(Tree(tmp_path), nvml))

    assert found[("GPU0", "GPU1")] == "NV4"
    assert found[("GPU0", "GPU2")] == "PHB"


@pytest.mark.parametrize(
    ("nic", "kind"),
    [
        ("pci0000:3a/0000:3a:00.0/0000:3b:00.0/0000:3c:01.0/0000:3e:00.0", "PIX"),
        ("pci0000:3a/0000:3a:00.0/0000:40:00.0/0000:41:00.0/0000:42:00.0/0000:43:00.0", "PXB"),
        ("pci0000:3a/0000:3a:05.0/0000:50:00.0", "PHB"),
        ("pci0000:60/0000:60:00.0/0000:61:00.0", "NODE"),
    ],
)
def test_the_way_to_a_network_device_is_read_off_the_bus(
    tmp_path: Path, nic: str, kind: str
) -> None:
    tree = Tree(tmp_path)
    switch = "pci0000:3a/0000:3a:00.0/0000:3b:00.0/0000:3c:00.0"
    tree.pci("0000:3d:00.0", switch, numa_node="0")
    tree.rdma("mlx5_0", nic)
    tree.sys(f"devices/{nic}/numa_node", "0\n")

    assert links_of(read(tree, FakeNvml("0000:3d:00.0"))) == {("GPU0", "mlx5_0"): kind}


def test_devices_of_two_nodes_reach_each_other_over_the_system(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.pci("0000:3d:00.0", "pci0000:3a/0000:3a:00.0", numa_node="0")
    tree.rdma("mlx5_0", "pci0000:80/0000:80:00.0/0000:81:00.0")
    tree.sys("devices/pci0000:80/0000:80:00.0/0000:81:00.0/numa_node", "1\n")

    assert links_of(read(tree, FakeNvml("0000:3d:00.0"))) == {("GPU0", "mlx5_0"): "SYS"}


def test_no_gpu_is_an_ordinary_machine(tmp_path: Path) -> None:
    found = read(Tree(tmp_path), "nvml_error_12")

    assert found.gpus == ()
    assert "gpus" not in found.missing


def test_a_gpu_without_its_driver_is_seen_on_the_bus(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.pci("0000:3b:00.0", "pci0000:3a", vendor="0x10de", **{"class": "0x030200"})
    tree.pci("0000:04:00.0", "pci0000:00", vendor="0x1a03", **{"class": "0x030000"})
    found = read(tree, "nvml_error_9")

    (gpu,) = found.gpus
    assert (gpu.vendor, gpu.has_driver, gpu.name, gpu.bus_id) == (
        "nvidia",
        False,
        None,
        "0000:3b:00.0",
    )
    assert found.missing["gpus"] == "nvml_error_9"


def test_a_driver_that_answers_nothing_leaves_gaps(tmp_path: Path) -> None:
    nvml = FakeNvml("0000:01:00.0", "0000:02:00.0")
    nvml.broken = {name for name in dir(FakeNvml) if name.startswith("nvml")}
    silent = read(Tree(tmp_path), nvml)
    nvml.broken -= {"nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex"}
    (tmp_path / "b").mkdir()
    named = read(Tree(tmp_path / "b"), nvml)

    assert (silent.gpus, silent.missing["gpus"]) == ((), "no_count")
    assert [gpu.name for gpu in named.gpus] == [None, None]
    assert named.links == ()


def test_a_driver_that_hangs_does_not_hold_us(tmp_path: Path) -> None:
    never = threading.Event()
    tree = Tree(tmp_path)
    tree.pci("0000:3b:00.0", "pci0000:3a", vendor="0x10de", **{"class": "0x030200"})
    tree.cores(2)
    found = read_inventory(
        tmp_path, load_nvml=never.wait, environment={}, kernel=tree.kernel, wait_s=0.01
    )
    never.set()

    assert found.missing["gpus"] == "driver_gave_no_answer"
    assert found.cpu.num_threads == 2


# -- network


def test_interfaces_with_hardware_have_a_speed_where_the_link_says_it(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    for name, speed, state in (("eth0", "100000", "up"), ("eth1", "-1", "down")):
        tree.link(f"class/net/{name}/device", f"devices/{name}")
        tree.sys(f"class/net/{name}/speed", speed + "\n")
        tree.sys(f"class/net/{name}/operstate", state + "\n")
    tree.sys("class/net/docker0/operstate", "up\n")

    first, second = read(tree).nics

    assert (first.name, first.speed_bits_per_s, first.is_up) == ("eth0", 100e9, True)
    assert (second.name, second.speed_bits_per_s, second.is_up) == ("eth1", None, False)


def test_a_device_for_remote_memory_has_its_rate_and_layer(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.rdma("mlx5_0", "pci0000:80/0000:81:00.0")
    (one,) = read(tree).rdma

    assert (one.name, one.speed_bits_per_s, one.link_layer) == ("mlx5_0", 400e9, "InfiniBand")
    assert one.is_active


# -- disks and mounts


def test_the_data_lies_on_the_longest_mount_and_the_last_of_equals(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    here = str(tmp_path.resolve())
    tree.mounts("/ ext4 /dev/sda1 8:1", f"{here} tmpfs none 0:9", f"{here} nfs4 box:/data 0:10")
    found = read(tree)

    assert found.data.mount is not None
    assert (found.data.mount.kind, found.data.mount.is_network) == ("nfs4", True)
    assert found.data.free_bytes is not None


def test_a_mount_leads_to_its_disk_through_partitions_and_volumes(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.mounts("/ ext4 /dev/mapper/root 253:0")
    tree.link("dev/block/253:0", "devices/virtual/block/dm-0")
    tree.link("devices/virtual/block/dm-0/slaves/nvme0n1p2", "devices/nvme/nvme0n1/nvme0n1p2")
    tree.sys("devices/nvme/nvme0n1/nvme0n1p2/partition", "2\n")
    tree.sys("block/nvme0n1/size", f"{4 * GIB // 512}\n")
    tree.sys("block/nvme0n1/device/model", "Fast Disk  \n")
    tree.sys("block/nvme0n1/queue/rotational", "0\n")
    tree.sys("block/loop0/size", "8\n")
    found = read(tree)

    assert found.mounts[0].disks == ("nvme0n1",)
    (disk,) = found.disks
    assert (disk.model, disk.size_bytes, disk.transport, disk.is_rotational) == (
        "Fast Disk",
        4 * GIB,
        "nvme",
        False,
    )


def test_of_hundreds_of_mounts_those_for_data_are_kept_and_all_are_counted(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.mounts(
        "/proc proc proc 0:1",
        "/dev/shm tmpfs tmpfs 0:2",
        "/sys/fs/cgroup tmpfs tmpfs 0:3",
        *(f"/layers/{i} overlay overlay 0:{i + 10}" for i in range(300)),
        "/with\\040blank xfs /dev/sdb 8:16",
    )
    found = read(tree)

    assert found.num_mounts == 302
    assert len(found.mounts) == 64
    assert found.mounts[0].folder == "/dev/shm"


# -- limits


def put_group(tree: Tree, own: str, mounted: str, **files: str) -> None:
    """The group of this process, of version 2 unless `own` names a controller."""
    folder = tree.kernel.sys / "fs" / "cgroup" / mounted
    kind, _, path = own.rpartition(":")
    tree.proc("self/cgroup", f"{'0:' if not kind else '4:' + kind}:{path}\n")
    options = kind or "nsdelegate"
    name = "cgroup" if kind else "cgroup2"
    tree.proc("self/mountinfo", f"9 1 0:5 / {folder} rw - {name} {name} rw,{options}\n")
    for file, text in files.items():
        tree.sys(f"fs/cgroup/{mounted}/{path.strip('/')}/{file.replace('__', '.')}", text + "\n")


def test_a_group_of_version_2_limits_cores_memory_and_processes(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    put_group(
        tree, "/pod", "", cpu__max="150000 100000", memory__max=str(4 * GIB), pids__max="4096"
    )
    limits = read(tree).limits

    assert (limits.group_version, limits.cpu_quota_cores) == (2, 1.5)
    assert (limits.memory_bytes, limits.num_processes) == (4 * GIB, 4096)


def test_a_quota_below_the_cores_is_what_can_be_used(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.cores(8)
    put_group(tree, "/pod", "", cpu__max="50000 100000")

    assert read(tree).cpu.num_usable == 1


def test_a_group_of_version_1_has_its_own_files(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    put_group(tree, "cpu:/job", "cpu", cpu__cfs_quota_us="200000", cpu__cfs_period_us="100000")
    found = read(tree)

    assert (found.limits.group_version, found.limits.cpu_quota_cores) == (1, 2.0)
    assert found.limits.memory_bytes is None


def test_no_limit_is_none_in_both_versions(tmp_path: Path) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    first.mkdir()
    second.mkdir()
    old, new = Tree(first), Tree(second)
    put_group(old, "memory:/", "memory", memory__limit_in_bytes="9223372036854771712")
    put_group(new, "/", "", memory__max="max", cpu__max="max 100000")

    assert [read(tree).limits.memory_bytes for tree in (old, new)] == [None, None]
    assert read(new).limits.cpu_quota_cores is None


def test_a_container_is_known_by_its_marks(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.proc("self/cgroup", "0::/kubepods/besteffort/pod1\n")
    in_pod = read(tree).limits.container
    (tmp_path / ".dockerenv").touch()

    assert (in_pod, read(tree).limits.container) == ("kubernetes", "docker")


# -- the value


def test_an_inventory_survives_json(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.cores(4)
    tree.rdma("mlx5_0", "pci0000:80/0000:81:00.0")
    found = read(tree, FakeNvml("0000:01:00.0", "0000:02:00.0", nvlinks=4))

    assert from_json(Inventory, json.loads(json.dumps(to_json(found)))) == found
