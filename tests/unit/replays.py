"""Whole nodes that are replayed: what their tools and their kernel say, read by our own readers.

Each machine is a function that plants files of the kernel and returns NVML and tools. Texts are
ours, in the form of public samples; `facts_of` reads them as `doctor` does.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest

from steptime.machine.checks import gather as gathering
from steptime.machine.checks import gather_node
from steptime.machine.checks.gather import Request, gather
from steptime.machine.inventory import read_inventory
from steptime.machine.read import read_node, read_site, read_system
from steptime.machine.read.run_tool import Said
from steptime.machine.values.check_facts import CheckFacts, LastRun, Software
from steptime.machine.values.inventory_values import Cpu, ProcessLimits
from unit.builders import make_rank
from unit.check_cases import WORKERS, make_run, make_software
from unit.machines import NodeNvml, Tree
from unit.tool_texts import (
    MI300X,
    ibstat,
    journal,
    lspci,
    plant_ibstat,
    plant_lspci,
)

GIB = 1 << 30
BUSES = ("1b", "43", "52", "61", "9d", "c3", "d1", "df")
NIC_BUSES = ("1a", "42", "51", "60", "9c", "c2", "d0", "de")
UPTIME_S = 400_000.0
BOUND = ("torchrun", "--numa-binding=node", "--nproc-per-node=8", "train.py")

LOG = "journalctl"


@dataclass(kw_only=True)
class Node:
    """A node: its NVML, answers of tools by a command's first word, and what is not in files."""

    nvml: NodeNvml | None = None
    tools: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    cpu: Cpu | None = None
    limits: ProcessLimits | None = None
    software: Software | None = None
    run: LastRun | str = "no_run"
    later: dict[str, str] = field(default_factory=dict)

    def answer(self, words: Sequence[str]) -> Said:
        text = self.tools.get(words[0])
        return Said(missing="no_tool") if text is None else Said(text=text)


Plant = Callable[[Tree], Node]


def base(tree: Tree, *, cores: int = 96, nodes: int = 2) -> None:
    """What every Linux machine shows."""
    tree.proc("uptime", f"{UPTIME_S:.2f} 38400000.00\n")
    tree.proc("meminfo", "MemTotal: 2113572864 kB\nMemAvailable: 2000000000 kB\nSwapTotal: 0 kB\n")
    tree.proc("stat", "cpu  900000 0 100000 9000000 0 0 0 0 0 0\n")
    tree.proc("sys/kernel/numa_balancing", "0\n")
    tree.sys("kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n")
    tree.proc("1/status", "Name:\tsystemd\nUid:\t0\t0\t0\t0\nThreads:\t1\n")
    tree.proc("1/comm", "systemd\n")
    tree.mounts("/ ext4 /dev/nvme0n1p2 259:2", "/home ext4 /dev/nvme0n1p3 259:3")
    each = cores // nodes
    for node in range(nodes):
        here = f"devices/system/node/node{node}"
        tree.sys(f"{here}/cpulist", f"{node * each}-{node * each + each - 1}\n")
        tree.sys(f"{here}/meminfo", f"Node {node} MemTotal: 1056786432 kB\n")
        tree.sys(f"{here}/distance", "10 21\n" if node == 0 else "21 10\n")
    tree.sys("devices/system/node/online", f"0-{nodes - 1}\n" if nodes > 1 else "0\n")
    tree.sys("devices/system/cpu/online", f"0-{cores - 1}\n")
    governor(tree, cores=cores)


def governor(
    tree: Tree,
    *,
    cores: int,
    word: str = "performance",
    driver: str = "intel_pstate",
    limit_khz: int = 3800000,
) -> None:
    for cpu in range(cores):
        here = f"devices/system/cpu/cpu{cpu}/cpufreq"
        tree.sys(f"{here}/scaling_governor", word + "\n")
        tree.sys(f"{here}/scaling_driver", driver + "\n")
        tree.sys(f"{here}/scaling_max_freq", f"{limit_khz}\n")
        tree.sys(f"{here}/cpuinfo_max_freq", "3800000\n")


def process(tree: Tree, pid: int, name: str, *, user: int = 0, threads: int = 1) -> None:
    tree.proc(f"{pid}/comm", name[:15] + "\n")
    tree.proc(f"{pid}/status", f"Name:\t{name}\nUid:\t{user}\t{user}\nThreads:\t{threads}\n")


def nvidia_driver(tree: Tree, *, kind: str = "Open Kernel Module") -> None:
    tree.proc("driver/nvidia/version", f"NVRM version: NVIDIA UNIX {kind} for x86_64  570.86.15\n")
    tree.proc("modules", "nvidia_uvm 4 0 - Live 0x0\nnvidia_peermem 16384 0 - Live 0x0\n")
    (tree.kernel.root / "dev").mkdir(exist_ok=True)
    (tree.kernel.root / "dev" / "nvidiactl").touch()


def infiniband(tree: Tree, text: str, **odd: str) -> None:
    devices = {f"mlx5_{i}": f"0000:{bus}:00.0" for i, bus in enumerate(NIC_BUSES)}
    plant_ibstat(tree, text, devices=devices, widths=odd)
    (tree.kernel.root / "dev" / "infiniband").mkdir(parents=True)
    (tree.kernel.root / "dev" / "infiniband" / "uverbs0").touch()


def ethernet(
    tree: Tree,
    name: str = "ens1f0",
    *,
    megabits: int = 100_000,
    mtu: int = 9000,
    cores: Sequence[int] = (0, 1, 2, 3),
    is_new: bool = True,
) -> None:
    """A card at a place of its own, with an interrupt for each of the cores given."""
    bus_id = "0000:0f:00.0"
    if is_new:
        tree.pci(bus_id, "pci0000:0e/0000:0e:01.0", local_cpulist="0-47", numa_node="0")
        tree.link(f"class/net/{name}/device", f"devices/pci0000:0e/0000:0e:01.0/{bus_id}")
    for file, text in (("operstate", "up"), ("speed", str(megabits)), ("mtu", str(mtu))):
        tree.sys(f"class/net/{name}/{file}", text + "\n")
    lines = ["            CPU0       CPU1\n"]
    for i, core in enumerate(cores):
        words = f"IR-PCI-MSIX-{bus_id}    {i}-edge      mlx5_comp{i}@pci:{bus_id}"
        lines.append(f"  {64 + i}:  123456       {i}  {words}\n")
        tree.proc(f"irq/{64 + i}/effective_affinity_list", f"{core}\n")
    tree.proc("interrupts", "".join(lines))


# -- the machines


def dgx(
    tree: Tree,
    *,
    rates: Mapping[int, int] | None = None,
    widths: Mapping[str, str] | None = None,
    acs: str = "off",
    log: tuple[tuple[float, str], ...] = (),
    lost: tuple[int, ...] = (),
    off: tuple[int, ...] = (),
    **odd: Mapping[int, object],
) -> Node:
    """A node of eight H100 with NVSwitches and eight cards of InfiniBand, as root sees it."""
    base(tree)
    nvidia_driver(tree)
    plant_lspci(tree, lspci(BUSES, nics=NIC_BUSES, switches=("07", "08", "09", "0a"), acs=acs))
    infiniband(tree, ibstat(8, rates=rates), **(widths or {}))
    ethernet(tree)
    process(tree, 900, "nv-fabricmanager")
    process(tree, 901, "irqbalance")
    return Node(
        nvml=NodeNvml(*BUSES, lost=lost, off=off, **odd),
        tools={LOG: journal(*log)},
        run=make_run(command=BOUND),
    )


def healthy(tree: Tree) -> Node:
    return dgx(tree)


def fallen_gpu(tree: Tree) -> Node:
    """The third GPU fell off the bus an hour ago; what ran on it was stopped."""
    at = UPTIME_S - 3600
    return dgx(
        tree,
        lost=(2,),
        log=(
            (at, "NVRM: GPU at PCI:0000:52:00: GPU-2a6f1b52-0000-4000-8000-000000000002"),
            (at, "NVRM: Xid (PCI:0000:52:00): 79, pid='<unknown>', name=<unknown>, GPU has"
             " fallen off the bus."),
            (at, "NVRM: GPU 0000:52:00.0: GPU has fallen off the bus."),
            (at + 0.2, "NVRM: Xid (PCI:0000:52:00): 45, pid=5123, name=python, Ch 00000008"),
            (at + 0.3, "NVRM: Xid (PCI:0000:52:00): 154, pid='<unknown>', name=<unknown>, GPU"
             " recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"),
        ),
    )  # fmt: skip


def failing_memory(tree: Tree) -> Node:
    """Memory errors of a GPU this morning; on another one a program's own error, and old ones."""
    at = UPTIME_S - 7200
    return dgx(
        tree,
        uncorrected={4: 2},
        log=(
            (9000.0, "NVRM: Xid (PCI:0000:61:00): 63, pid='<unknown>', name=<unknown>, Row"
             " Remapper: New row (0x1a2) marked for remapping, reset gpu to activate."),
            (at, "NVRM: Xid (PCI:0000:9d:00): 48, pid=7001, name=python, DBE (double bit error)"),
            (at + 1, "NVRM: Xid (PCI:0000:9d:00): 94, pid=7001, name=python, Contained memory"
             " error (0x3)"),
            (at + 2, "NVRM: Xid (PCI:0000:9d:00): 45, pid=7001, name=python, Ch 00000010"),
            (at + 9, "NVRM: Xid (PCI:0000:c3:00): 31, pid=7100, name=python, Ch 00000012, intr"
             " 00000000. MMU Fault: ENGINE GRAPHICS GPC3 faulted @ 0x7f11_2ab00000"),
        ),
    )  # fmt: skip


def off_nvlink(tree: Tree) -> Node:
    """The sixth GPU has no NVLink, and NVLink errors were reported for it."""
    at = UPTIME_S - 1800
    line = "NVRM: Xid (PCI:0000:c3:00): 74, pid='<unknown>', name=<unknown>, NVLink: fatal error"
    return dgx(tree, off=(5,), log=((at, line), (at + 60, line), (at + 120, line)))


def slow_link(tree: Tree) -> Node:
    """Two GPUs' links are of the first generation: one trains, the other one rests."""
    return dgx(tree, generation={1: 1, 6: 1}, busy={1: 93}, used_mib={1: 1200})


def divided(tree: Tree) -> Node:
    """Two GPUs are divided, and a third one waits for its reset; NVLinks of the divided rest."""
    on = {0: 1, 1: 1}
    node = dgx(tree, mig=on, mig_pending={**on, 2: 1}, off=(0, 1))
    return replace(node, run="no_run")


def filled_gpu(tree: Tree) -> Node:
    """Somebody else's process holds most of a GPU's memory; one of ours is on another one."""
    process(tree, 4711, "python", user=1007, threads=40)
    process(tree, 4800, "python", user=1000, threads=40)
    rows = {3: ((4711, "python", 70200),), 7: ((4800, "python", 8990),)}
    return dgx(tree, used_mib={3: 70212, 7: 9000}, processes=rows)


def quarter_rate(tree: Tree) -> Node:
    """A port came up with one lane of four; the kernel redirects peers."""
    node = dgx(tree, rates={2: 100}, widths={"mlx5_2": "1X NDR"}, acs="on")
    return replace(
        node,
        environment={"SLURM_NNODES": "4", "SLURM_JOB_ID": "7", "SLURMD_NODENAME": "node7"},
    )


def cloud(tree: Tree) -> Node:
    """A guest of 8 cores whose host takes a fifth of them, with a governor that saves."""
    base(tree, cores=8, nodes=1)
    governor(tree, cores=8, word="powersave", driver="acpi-cpufreq")
    ethernet(tree, "eth0", megabits=50_000, mtu=1500, cores=(0, 0, 0, 0))
    cpu = Cpu(model="Xeon", architecture="x86_64", num_threads=8, num_usable=8, is_virtual=True)
    return Node(
        cpu=cpu,
        limits=replace(LIMITS, cpus="0-7"),
        software=make_software(
            torch="2.13.0+cpu", cuda=None, num_devices=None, pins=(), num_threads=4
        ),
        tools={},
        later={"stat": "cpu  900300 0 100000 9000000 0 0 0 75 0 0\n"},
    )


def slurm(tree: Tree) -> Node:
    """A job with two of eight GPUs, 16 cores, and a group of 512 processes; home is on NFS."""
    base(tree)
    nvidia_driver(tree)
    plant_lspci(tree, lspci(BUSES[:2], nics=NIC_BUSES[:2], acs="denied"))
    tree.mounts("/ ext4 /dev/nvme0n1p2 259:2", "/home nfs4 filer:/home 0:50", "/tmp xfs /dev/b 8:1")
    scope = "system.slice/slurmstepd.scope/job_4242"
    group = tree.kernel.root / "cgroup" / scope
    group.mkdir(parents=True)
    tree.proc("self/cgroup", f"0::/{scope}/step_0/user/task_0\n")
    line = f"30 1 0:26 / {tree.kernel.root / 'cgroup'} rw - cgroup2 cgroup2 rw\n"
    mounts = tree.kernel.proc / "self" / "mountinfo"
    mounts.write_text(mounts.read_text() + line)
    (group / "pids.max").write_text("512\n")
    (group / "pids.current").write_text("37\n")
    for pid in (2, 900):
        process(tree, pid, "slurmd")
    return Node(
        nvml=NodeNvml(*BUSES[:2], used_mib={1: 40000}),
        environment={
            "SLURM_JOB_ID": "4242",
            "SLURM_NNODES": "2",
            "SLURM_CPUS_PER_TASK": "8",
            "CUDA_VISIBLE_DEVICES": "0,1",
            "HOME": "/home/ada",
        },
        limits=replace(LIMITS, cpus="0-15"),
        software=make_software(num_threads=16, num_devices=2),
        run=make_run(
            command=BOUND,
            num_ranks=2,
            ranks=(replace(make_rank(), num_threads=16),) * 2,
            workers=replace(WORKERS, num_workers=32),
        ),
    )


def bare_container(tree: Tree) -> Node:
    """A container with two GPUs and no tools: neither journal, lspci nor NVML."""
    base(tree, cores=16, nodes=1)
    nvidia_driver(tree)
    (tree.kernel.root / ".dockerenv").touch()
    plant_lspci(tree, lspci(BUSES[:2]))
    tree.proc("modules", "nvidia 4 0 - Live 0x0\n")
    return Node(
        limits=replace(LIMITS, cpus="0-15", container="docker", stack_bytes=64 << 20),
        software=make_software(num_threads=16, num_devices=0),
    )


def amd(tree: Tree) -> Node:
    """Eight MI300X: the kernel moves memory between nodes, and the clock follows the load."""
    base(tree)
    tree.proc("sys/kernel/numa_balancing", "1\n")
    governor(tree, cores=96, word="schedutil", driver="acpi-cpufreq")
    plant_lspci(tree, lspci(BUSES, acs="denied", gpu=MI300X), iommu="DMA-FQ")
    return Node(
        software=make_software(
            torch="2.13.0+rocm7", cuda=None, hip="7.0", num_devices=8, pins=(), nccl=None
        ),
        tools={},
    )


def healthy_as_user(tree: Tree) -> Node:
    """The healthy node, as a user sees it who may read neither the log nor PCI registers."""
    node = dgx(tree, acs="denied")
    node.tools[LOG] = "-- No entries --\n"
    return node


def many_faults(tree: Tree) -> Node:
    """Most of it at once: no two of the remedies may contradict each other."""
    at = UPTIME_S - 600
    node = dgx(
        tree,
        lost=(2,),
        off=(5,),
        rates={1: 100},
        widths={"mlx5_1": "1X NDR"},
        acs="on",
        generation={0: 1},
        busy={0: 80},
        used_mib={0: 1000, 4: 70212},
        mig={7: 1},
        mig_pending={7: 1},
        persistence={1: 0},
        uncorrected={6: 1},
        log=(
            (at, "NVRM: Xid (PCI:0000:52:00): 79, GPU has fallen off the bus."),
            (at + 1, "NVRM: Xid (PCI:0000:d1:00): 95, Uncontained memory error"),
            (at + 2, "NVRM: Xid (PCI:0000:1b:00): 31, pid=9, name=python, Ch 00000012, MMU Fault"),
            (at + 3, "nvidia-nvswitch3: SXid (PCI:0000:0a:00.0): 20034, Fatal, Link 30 LTSSM"),
        ),
    )
    governor(tree, cores=96, word="powersave", driver="acpi-cpufreq")
    tree.mounts("/ ext4 /dev/a 259:2", "/home lustre mds:/home 0:50", "/tmp xfs /dev/b 8:1")
    ethernet(tree, mtu=1500, cores=(90, 90, 90), is_new=False)
    tree.proc("901/comm", "sleep\n")
    return replace(
        node,
        run=make_run(command=("torchrun", "--nnodes=4", "--nproc-per-node=8", "train.py")),
        software=make_software(num_threads=192, num_devices=7),
    )


MACHINES: Mapping[str, Plant] = {
    "healthy": healthy,
    "healthy_as_user": healthy_as_user,
    "many_faults": many_faults,
    "fallen_gpu": fallen_gpu,
    "failing_memory": failing_memory,
    "off_nvlink": off_nvlink,
    "slow_link": slow_link,
    "divided": divided,
    "filled_gpu": filled_gpu,
    "quarter_rate": quarter_rate,
    "cloud": cloud,
    "slurm": slurm,
    "bare_container": bare_container,
    "amd": amd,
}

LIMITS = ProcessLimits(
    cpus="0-95",
    shm_bytes=1000 * GIB,
    num_open_files=1_048_576,
    stack_bytes=8 << 20,
)
CPU = Cpu(
    model="Xeon Platinum 8480C",
    architecture="x86_64",
    num_threads=96,
    num_usable=96,
    is_virtual=False,
)


def facts_of(node: Node, tree: Tree, patch: pytest.MonkeyPatch) -> CheckFacts:
    """Read the node as `doctor` does; only what is of this very process is replaced."""
    patch.setattr(gather_node, "own_user", lambda: (1000, "ada"))
    patch.setattr(read_node, "_soft_processes", lambda: None)
    # Whoever runs the tests is no administrator there, and nobody else is at work.
    patch.setattr(read_site, "os", SimpleNamespace(geteuid=lambda: 1000, getuid=os.getuid))
    patch.setattr(gathering, "read_interfaces", lambda _: ())
    patch.setattr(gathering, "_software", lambda *_: node.software or make_software(num_devices=8))

    clock_s = count()

    def pass_time(_: float) -> None:
        for name, text in node.later.items():
            tree.proc(name, text)

    clock = SimpleNamespace(sleep=pass_time, monotonic=lambda: float(next(clock_s)))
    patch.setattr(read_system, "time", clock)
    nvml = node.nvml or "no_binding"
    inventory = read_inventory(
        Path("/data"), load_nvml=lambda: nvml, environment={}, kernel=tree.kernel
    )
    read = inventory.limits
    limits = replace(node.limits or LIMITS, group_version=read.group_version)
    inventory = replace(
        inventory,
        cpu=node.cpu or CPU,
        limits=limits,
        kernel="5.15.0-1046-nvidia",
        data=replace(inventory.data, folder="/data", total_bytes=None, free_bytes=None),
    )
    request = Request(
        python=None,
        environment={"HOME": "/home/ada", **node.environment},
        folders={},
        nccl_log=None,
        run=node.run,
    )
    return gather(
        inventory,
        request,
        load_nvml=lambda: nvml,
        kernel=tree.kernel,
        run=node.answer,
    )
