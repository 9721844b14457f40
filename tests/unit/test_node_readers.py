"""The readers of a node: what tools and small files say, whole, cut short, and not at all."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from steptime.machine.checks.gather_node import with_owners
from steptime.machine.inventory import read_inventory
from steptime.machine.read.read_cpu_clock import read_cpu_clock, read_ticks, steal_between
from steptime.machine.read.read_gpus import read_gpu_states
from steptime.machine.read.read_kernel_log import bus_id_in, parse_kernel_log, read_kernel_log
from steptime.machine.read.read_node import (
    read_caches,
    read_fabric,
    read_peer_memory,
    read_room,
)
from steptime.machine.read.read_pci import read_pci_path
from steptime.machine.read.read_ports import read_queues, read_rdma_ports
from steptime.machine.read.run_tool import Said, run_tool
from steptime.machine.values.inventory_values import Mount, Nic
from steptime.machine.values.node_facts import GpuProcess, Steal
from unit.check_cases import GPU_STATE, make_gpu, make_inventory
from unit.machines import NodeNvml, Tree
from unit.replays import BUSES, dgx, ethernet, process
from unit.tool_texts import (
    journal,
    lspci,
    plant_lspci,
)

# -- tools


def python(code: str) -> tuple[str, str, str]:
    return sys.executable, "-c", code


def test_a_tool_says_its_text_without_our_input_in_plain_english() -> None:
    code = "import os, sys; print(sys.stdin.read() + os.environ['LC_ALL'])"

    assert run_tool(python(code)) == Said(text="C\n")


def test_a_tool_that_is_not_there_or_fails_says_why() -> None:
    assert run_tool(("no-such-tool-anywhere", "-q")).missing == "no_tool"
    assert run_tool(python("print(1); raise SystemExit(3)")) == Said(
        text="1\n", missing="tool_failed"
    )


def test_a_tool_that_hangs_or_never_ends_its_words_is_cut_off() -> None:
    late = run_tool(python("import time; time.sleep(600)"), limit_s=0.3)
    long = run_tool(python("while True: print('word' * 99)"), max_bytes=1000)

    assert late.missing == "no_answer_in_time"
    assert (long.missing, len(long.text)) == ("too_long", 1000)


def test_what_a_tool_started_is_ended_with_it() -> None:
    code = "import subprocess; subprocess.Popen(['sleep', '600'])"

    assert run_tool(python(code), limit_s=0.5).missing == "no_answer_in_time"


# -- the kernel's log


def test_errors_are_counted_by_gpu_and_number_with_their_age() -> None:
    text = journal(
        (100.0, "NVRM: Xid (PCI:0000:18:00): 31, pid=7, name=python, Ch 8, MMU Fault"),
        (300.0, "NVRM: Xid (PCI:0000:18:00): 31, pid=8, name=python, Ch 9, MMU Fault"),
        (350.0, "NVRM: Xid (0000:2a:00): 13, Graphics Exception"),
    )

    found = parse_kernel_log(text, source="journalctl", uptime_s=1000.0)

    assert [(one.bus_id, one.code, one.num) for one in found.xids] == [
        ("0000:18:00.0", 31, 2),
        ("0000:2a:00.0", 13, 1),
    ]
    assert (found.xids[0].first_age_s, found.xids[0].last_age_s) == (900.0, 700.0)
    assert found.covers_s == 1000.0


def test_whose_process_it_was_is_not_kept() -> None:
    text = journal((1.0, "NVRM: Xid (PCI:0000:18:00): 13, pid=4711, name=secret, Ch 00000008"))

    (found,) = parse_kernel_log(text, source="dmesg", uptime_s=2.0).xids

    assert found.words == "Ch 00000008"


def test_a_gpu_that_is_off_the_bus_in_words_alone_is_one_too() -> None:
    text = (
        "[ 1843.308145] NVRM: The NVIDIA GPU 0000:b3:00.0\n"
        "               NVRM: (PCI ID: 10de:26b5) installed in this system has\n"
        "               NVRM: fallen off the bus and is not responding to commands.\n"
    )

    (found,) = parse_kernel_log(text, source="dmesg", uptime_s=None).xids

    assert (found.bus_id, found.code, found.last_age_s) == ("0000:b3:00.0", 79, None)


def test_the_words_beside_the_number_do_not_count_twice() -> None:
    text = journal(
        (5.0, "NVRM: Xid (PCI:0000:18:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off"
         " the bus."),
        (5.0, "NVRM: GPU 0000:18:00.0: GPU has fallen off the bus."),
    )  # fmt: skip

    (found,) = parse_kernel_log(text, source="dmesg", uptime_s=6.0).xids

    assert found.num == 1


def test_fatal_errors_of_switches_alone_count() -> None:
    text = journal(
        (5.0, "nvidia-nvswitch3: SXid (PCI:0000:8d:00.0): 12028, Non-fatal, Link 32 egress"),
        (6.0, "nvidia-nvswitch3: SXid (PCI:0000:8d:00.0): 20034, Fatal, Link 30 LTSSM Fault Up"),
    )

    (found,) = parse_kernel_log(text, source="dmesg", uptime_s=9.0).sxids

    assert (found.bus_id, found.code, found.last_age_s) == ("0000:8d:00.0", 20034, 3.0)


@pytest.mark.parametrize(
    "text", ["0000:18:00", "00000000:18:00.0", "0000:18:00.0", "18:00", "00000000:18:00"]
)
def test_a_bus_id_is_written_as_the_kernel_writes_it(text: str) -> None:
    assert bus_id_in(text) == "0000:18:00.0"


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"journalctl": Said(text="-- No entries --\n"), "dmesg": Said(missing="tool_failed")},
         "no_right_to_read_the_log"),
        ({}, "no_tool"),
        ({"dmesg": Said(missing="tool_failed")}, "no_right_to_read_the_log"),
    ],
)  # fmt: skip
def test_a_log_that_shows_nothing_is_no_log_without_errors(
    tmp_path: Path, said: dict[str, Said], expected: str
) -> None:
    def run(words: Any) -> Said:
        return said.get(words[0], Said(missing="no_tool"))

    assert read_kernel_log(Tree(tmp_path).kernel, run) == expected


def test_dmesg_speaks_where_the_journal_does_not(tmp_path: Path) -> None:
    def run(words: Any) -> Said:
        text = "[    0.000000] Linux version 5.15\n[   10.5] NVRM: Xid (PCI:0000:18:00): 48, DBE\n"
        return Said(text=text) if words[0] == "dmesg" else Said(missing="no_tool")

    found = read_kernel_log(Tree(tmp_path).kernel, run)

    assert not isinstance(found, str)
    assert (found.source, found.xids[0].code) == ("dmesg", 48)


# -- GPUs


def test_nvml_tells_what_a_gpu_does_and_who_is_on_it() -> None:
    rows = {1: ((4711, "/usr/bin/python3", 70200),)}

    idle, busy = read_gpu_states(NodeNvml("1b", "43", busy={1: 93}, off=(1,), processes=rows))

    assert (idle.persistence, idle.mig, idle.fabric) == (True, False, "completed")
    assert (idle.power_limit_w, idle.default_power_limit_w) == (700.0, 700.0)
    assert (idle.num_uncorrected, idle.rows_pending, idle.rows_failed) == (0, False, False)
    assert (idle.held_down, idle.processes, idle.nvlinks_up, idle.nvlinks) == ((), (), 18, 18)
    assert (busy.busy_fraction, busy.nvlinks_up, busy.nvlinks) == (0.93, 0, 18)
    assert busy.processes == (
        GpuProcess(pid=4711, name="/usr/bin/python3", used_bytes=70200 << 20),
    )


def test_what_an_old_driver_leaves_out_is_none() -> None:
    nvml = NodeNvml("01")
    nvml.broken = {
        "nvmlDeviceGetMigMode",
        "nvmlDeviceGetComputeRunningProcesses",
        "nvmlDeviceGetGpuFabricInfo",
        "nvmlDeviceGetTotalEccErrors",
        "nvmlDeviceGetNvLinkState",
    }

    (found,) = read_gpu_states(nvml)

    assert (found.mig, found.processes, found.fabric, found.num_uncorrected) == (None,) * 4
    assert (found.num_processes, found.nvlinks_up, found.nvlinks) == (None,) * 3


def test_links_name_cards_by_their_device(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    dgx(tree)
    buses = BUSES[:4]

    inventory = read_inventory(
        tmp_path,
        load_nvml=lambda: NodeNvml(*buses, off=(3,)),
        environment={},
        kernel=tree.kernel,
    )

    ways = {(one.first, one.second): one.kind for one in inventory.links}
    assert ways["GPU0", "GPU1"] == "NV18"
    assert ways["GPU0", "GPU3"] == "SYS"
    assert ways["GPU2", "mlx5_2"] == "PIX"
    assert len(ways) == 4 * 3 // 2 + 4 * 8 + 8 * 7 // 2


def test_a_gpu_that_does_not_answer_is_told_by_the_count(tmp_path: Path) -> None:
    found = read_inventory(
        tmp_path,
        load_nvml=lambda: NodeNvml("1b", "43", lost=(1,)),
        environment={},
        kernel=Tree(tmp_path).kernel,
    )

    assert found.missing["gpus"] == "some_do_not_answer"
    assert (found.nvidia_driver, len(found.gpus)) == ("570.86.15", 1)


def test_whose_a_process_is_comes_from_the_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("steptime.machine.checks.gather_node.own_user", lambda: (1000, "ada"))
    tree = Tree(tmp_path)
    process(tree, 7, "python", user=1000)
    process(tree, 8, "python", user=1001)
    on = tuple(GpuProcess(pid=pid) for pid in (7, 8, 9))
    states = (replace(GPU_STATE, processes=on),)

    (seen,) = with_owners(tree.kernel, states, is_container=False)
    (hidden,) = with_owners(tree.kernel, states, is_container=True)

    assert [one.is_ours for one in seen.processes or ()] == [True, False, None]
    assert [one.is_ours for one in hidden.processes or ()] == [None] * 3


def test_a_gpu_that_waits_for_its_division_and_a_fabric_that_failed_are_told() -> None:
    (found,) = read_gpu_states(NodeNvml("3b", mig_pending={0: 1}, fabric_status={0: 999}))

    assert (found.mig, found.mig_pending, found.fabric) == (False, True, "failed")


# -- the cores


def test_the_policy_of_the_allowed_cores_alone_counts(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    for cpu, word in enumerate(("powersave", "performance", "performance")):
        here = f"devices/system/cpu/cpu{cpu}/cpufreq"
        tree.sys(f"{here}/scaling_governor", word + "\n")
        tree.sys(f"{here}/scaling_max_freq", f"{(cpu + 1) * 1000000}\n")

    found = read_cpu_clock(tree.kernel, cpus="1-2")

    assert found is not None
    assert (found.governors, found.limit_hz, found.best_hz) == ({"performance": 2}, 2e9, None)
    assert read_cpu_clock(tree.kernel, cpus="7") is None


def test_stolen_time_is_a_share_of_what_was_wanted(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.proc("stat", "cpu  100 0 0 9000 50 0 0 0 0 0\n")
    before = read_ticks(tree.kernel)
    tree.proc("stat", "cpu  175 0 0 9900 60 0 0 25 0 0\n")

    found = steal_between(before, read_ticks(tree.kernel))

    assert found == Steal(now_fraction=0.25, boot_fraction=0.125)
    idle = steal_between(read_ticks(tree.kernel), read_ticks(tree.kernel))
    assert idle is not None
    assert idle.now_fraction is None
    assert steal_between(before, None) is None


def test_room_is_that_of_the_tightest_group(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    outer, inner = tmp_path / "group", tmp_path / "group" / "job"
    inner.mkdir(parents=True)
    tree.proc("self/cgroup", "4:pids:/job\n")
    tree.proc("self/mountinfo", f"30 1 0:26 / {outer} rw - cgroup cgroup rw,pids\n")
    for folder, limit, used in ((outer, "512", "500"), (inner, "max", "3")):
        (folder / "pids.max").write_text(limit + "\n")
        (folder / "pids.current").write_text(used + "\n")
    process(tree, 1, "systemd")
    process(tree, 50, "python", user=1000, threads=40)

    found = read_room(tree.kernel, user=1000)

    assert (found.group_limit, found.group_used) == (512, 500)
    assert found.user_used == 40
    assert read_room(tree.kernel, user=0).user_limit is None


# -- network and paths


def test_a_rate_has_its_lanes(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.rdma("mlx5_0", "pci0000:17/0000:18:00.0", rate="100 Gb/sec (1X NDR)")
    tree.rdma("mlx5_1", "pci0000:17/0000:19:00.0", rate="25 Gb/sec")

    narrow, plain = read_rdma_ports(tree.kernel) or ()

    assert (narrow.rate_bits_per_s, narrow.width, narrow.speed) == (1e11, 1, "NDR")
    assert (narrow.state, plain.width, plain.speed) == ("ACTIVE", None, None)


def test_no_devices_are_not_unknown_ones(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    assert read_rdma_ports(tree.kernel) is None
    tree.sys("class/net/lo/mtu", "65536\n")

    assert read_rdma_ports(tree.kernel) == ()


def test_interrupts_are_those_of_the_interface(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    ethernet(tree, "ens1", cores=(2, 3))
    lines = (tree.kernel.proc / "interrupts").read_text()
    lines += "  90:  77  0  IR-PCI-MSIX  1-edge  ens1f1-TxRx-0\n  91:  0  0  IR-PCI  ens1-TxRx-9\n"
    tree.proc("interrupts", lines)
    tree.proc("irq/90/smp_affinity_list", "5\n")
    tree.proc("irq/91/smp_affinity_list", "6\n")

    (found,) = read_queues(tree.kernel, (Nic(name="ens1", is_up=True, speed_bits_per_s=1e11),))

    assert found.interrupts == ((2,), (3,))  # not its neighbour's, and not one never raised
    assert (found.mtu_bytes, found.near[:2]) == (9000, (0, 1))


@pytest.mark.parametrize(("acs", "redirecting"), [("off", 0), ("on", 6), ("denied", None)])
def test_access_control_is_read_from_the_bridges_registers(
    tmp_path: Path, acs: str, redirecting: int | None
) -> None:
    tree = Tree(tmp_path)
    plant_lspci(tree, lspci(BUSES[:2], nics=("1a", "42"), acs=acs), iommu="DMA-FQ")
    gpus = tuple(make_gpu(i, bus_id=f"0000:{bus}:00.0") for i, bus in enumerate(BUSES[:2]))

    found = read_pci_path(tree.kernel, make_inventory(gpus=gpus))

    assert found is not None
    assert (found.num_devices, found.num_bridges, found.iommu) == (2, 6, "translating")
    told = None if found.redirecting is None else len(found.redirecting)
    assert told == redirecting


def test_no_iommu_is_off_and_no_list_of_them_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    gpus = (make_gpu(bus_id="0000:1b:00.0"),)
    off, silent = Tree(tmp_path / "a"), Tree(tmp_path / "b")
    plant_lspci(off, lspci(BUSES[:1]), iommu=None)
    silent.pci("0000:1b:00.0", "pci0000:17/0000:17:01.0")

    for tree, expected in ((off, "off"), (silent, None)):
        found = read_pci_path(tree.kernel, make_inventory(gpus=gpus))
        assert found is not None
        assert found.iommu == expected


# -- the rest


def test_caches_are_where_their_variables_say_on_their_file_system() -> None:
    mounts = (
        Mount(folder="/", kind="ext4", source="/dev/a"),
        Mount(folder="/home", kind="nfs4", source="s:/", is_network=True),
    )
    environment = {"HOME": "/home/ada", "TRITON_CACHE_DIR": "/scratch/triton"}

    found = {one.library: one for one in read_caches(environment, mounts, user="ada")}

    assert found["triton"].folder == "/scratch/triton"
    assert not found["triton"].is_network
    assert found["torch.compile"].folder == "/tmp/torchinductor_ada"
    assert (found["cuda"].folder, found["cuda"].is_network) == ("/home/ada/.nv/ComputeCache", True)


def test_what_offers_a_gpus_memory_is_told_by_modules_and_driver(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    assert read_peer_memory(tree.kernel, release="5.15.0") is None
    tree.proc("modules", "nvidia 4 0 - Live 0x0\nnv_peer_mem 1 0 - Live 0x0\n")
    tree.proc("driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.1\n")

    found = read_peer_memory(tree.kernel, release="5.15.0-91-generic")

    assert found is not None
    assert (found.module, found.is_open_driver, found.kernel) == ("nv_peer_mem", False, (5, 15))


def test_the_manager_of_switches_is_found_by_its_cut_name(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    plant_lspci(tree, lspci(BUSES[:1], switches=("07",)))

    hidden = read_fabric(tree.kernel, is_container=False)
    process(tree, 1, "systemd")
    absent = read_fabric(tree.kernel, is_container=False)
    process(tree, 900, "nv-fabricmanager")
    there = read_fabric(tree.kernel, is_container=False)

    assert [one and (one.num_switches, one.is_managed) for one in (hidden, absent, there)] == [
        (1, None),
        (1, False),
        (1, True),
    ]
