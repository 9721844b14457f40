"""Planted nodes: for each check of the node one that it finds, and one that is as it should be."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from steptime.machine.values.check_facts import CheckFacts, GpuState
from steptime.machine.values.inventory_values import Cpu, Link, Mount
from steptime.machine.values.node_facts import (
    CacheFolder,
    CpuClock,
    Fabric,
    GpuProcess,
    KernelLog,
    NicQueues,
    NodeFacts,
    PciPath,
    PeerMemory,
    ProcessRoom,
    RdmaPort,
    Steal,
    XidCount,
)
from unit import check_cases
from unit.check_cases import (
    ACTIVE,
    CRITICAL,
    FILES,
    GIB,
    GPU_STATE,
    HERE,
    INFO,
    WORKERS,
    Case,
    make_facts,
    make_gpu,
    make_log,
    make_run,
    on_gpu,
    on_several,
    with_variable,
)

PAIR = (make_gpu(), make_gpu(1, bus_id="0000:5d:00.0"))
FOUR = tuple(make_gpu(i, bus_id=f"0000:{i + 1}0:00.0") for i in range(4))
RDMA = replace(ACTIVE, name="mlx5_0")
PORT = RdmaPort(
    device="mlx5_0",
    port=1,
    kind="MT4129",
    link_layer="InfiniBand",
    state="ACTIVE",
    physical="LinkUp",
    rate_bits_per_s=4e11,
    width=4,
    speed="NDR",
)
NARROW = replace(PORT, device="mlx5_1", rate_bits_per_s=1e11, width=1)
QUEUES = NicQueues(
    name="ens1",
    speed_bits_per_s=1e11,
    mtu_bytes=9000,
    interrupts=((0,), (1,), (2,)),
    near=(0, 1, 2, 3),
)
NETWORK_CACHE = CacheFolder(
    library="triton",
    variable="TRITON_CACHE_DIR",
    folder="/home/ada/.triton/cache",
    kind="nfs4",
    is_network=True,
)
LOCAL_CACHE = replace(NETWORK_CACHE, kind="ext4", is_network=False)
LOCAL_TMP = Mount(folder="/tmp", kind="xfs", source="/dev/b")
HOUR = 3600.0


def with_node(facts: CheckFacts, **fields: Any) -> CheckFacts:
    return replace(facts, node=NodeFacts(**fields))


def logged(*xids: XidCount, base: CheckFacts | None = None) -> CheckFacts:
    log = KernelLog(source="journalctl", covers_s=400_000.0, xids=xids)
    return with_node(base or on_gpu(*PAIR), kernel_log=log)


def xid(code: int, *, bus: str = "5d", num: int = 1, age_s: float | None = HOUR) -> XidCount:
    return XidCount(
        bus_id=f"0000:{bus}:00.0", code=code, num=num, last_age_s=age_s, first_age_s=age_s
    )


def states(*fields: dict[str, Any]) -> tuple[GpuState, ...]:
    return tuple(replace(GPU_STATE, index=i, **given) for i, given in enumerate(fields))


def with_states(*fields: dict[str, Any], **parts: Any) -> CheckFacts:
    gpus = FOUR[: len(fields)]
    return replace(on_gpu(*gpus, **parts), gpu_states=states(*fields))


def silent_gpu() -> CheckFacts:
    facts = logged(xid(79))
    inventory = replace(
        facts.inventory, gpus=facts.inventory.gpus[:1], missing={"gpus": "some_do_not_answer"}
    )
    return replace(facts, inventory=inventory)


def slow_pcie(busy: float) -> CheckFacts:
    return on_gpu(make_gpu(pcie_generation=1, max_pcie_generation=5, busy_fraction=busy))


def taken(*processes: GpuProcess) -> CheckFacts:
    gpus = (make_gpu(used_bytes=70 * GIB), make_gpu(1, used_bytes=0))
    return replace(on_gpu(*gpus), gpu_states=states({"processes": processes}, {}))


def on_bare_metal(**parts: Any) -> CheckFacts:
    return on_gpu(*PAIR, cpu=replace(HERE.inventory.cpu, is_virtual=False), **parts)


GUEST = Cpu(model="Xeon", architecture="x86_64", num_threads=8, num_usable=8, is_virtual=True)
METAL = replace(GUEST, is_virtual=False)
STRANGER = GpuProcess(pid=4711, is_ours=False, used_bytes=70 * GIB, name="python")

NODE_CASES: dict[str, Case] = {
    "gpu_off_the_bus": Case(fires=silent_gpu(), clean=on_gpu(), without=HERE, severity=CRITICAL),
    "gpu_errors_logged": Case(
        fires=logged(xid(95)), clean=logged(), without=HERE, severity=CRITICAL
    ),
    "program_errors_logged": Case(
        fires=logged(xid(31)), clean=logged(), without=HERE, severity=INFO
    ),
    "pcie_link_slow": Case(
        fires=slow_pcie(0.9),
        clean=on_gpu(make_gpu(pcie_generation=5, max_pcie_generation=5, busy_fraction=0.9)),
        without=HERE,
    ),
    "gpu_memory_taken": Case(
        fires=taken(STRANGER), clean=on_gpu(make_gpu(used_bytes=1 << 20)), without=HERE
    ),
    "nvlink_down": Case(
        fires=with_states(
            *({"nvlinks_up": 18, "nvlinks": 18},) * 3, {"nvlinks_up": 0, "nvlinks": 18}
        ),
        clean=with_states(*({"nvlinks_up": 18, "nvlinks": 18},) * 4),
        without=on_gpu(state=GPU_STATE),
        severity=CRITICAL,
    ),
    "fabric_not_ready": Case(
        fires=with_states({"fabric": "in_progress"}),
        clean=with_states({"fabric": "completed"}),
        without=with_node(on_gpu(state=GPU_STATE), fabric=Fabric()),
        severity=CRITICAL,
    ),
    "mig_on": Case(
        fires=with_states({"mig": True, "mig_pending": True}),
        clean=with_states({"mig": False, "mig_pending": False}),
        without=on_gpu(state=GPU_STATE),
        severity=INFO,
    ),
    "rdma_port_slow": Case(
        fires=with_node(HERE, rdma_ports=(PORT, NARROW)),
        clean=with_node(HERE, rdma_ports=(PORT, PORT)),
        without=with_node(HERE, rdma_ports=()),
    ),
    "rdma_port_not_active": Case(
        fires=with_node(HERE, rdma_ports=(PORT, replace(NARROW, state="INIT", width=4))),
        clean=with_node(HERE, rdma_ports=(PORT,)),
        without=with_node(HERE, rdma_ports=()),
    ),
    "mtu_small": Case(
        fires=with_node(HERE, nics=(replace(QUEUES, mtu_bytes=1500),)),
        clean=with_node(HERE, nics=(QUEUES,)),
        without=with_node(HERE, nics=()),
        severity=INFO,
    ),
    "interrupts_crowded": Case(
        fires=with_node(HERE, nics=(replace(QUEUES, interrupts=((0,), (0,), (0,))),)),
        clean=with_node(HERE, nics=(QUEUES,)),
        without=with_node(HERE, nics=()),
        severity=INFO,
    ),
    "gpu_direct_not_loaded": Case(
        fires=with_node(
            on_several(on_gpu(rdma=(RDMA,), system=FILES)),
            peer_memory=PeerMemory(is_open_driver=False, kernel=(5, 15)),
        ),
        clean=with_node(
            on_gpu(rdma=(RDMA,), system=FILES), peer_memory=PeerMemory(module="nvidia_peermem")
        ),
        without=HERE,
    ),
    "peers_redirected": Case(
        fires=with_node(
            on_bare_metal(),
            pci=PciPath(num_devices=2, num_bridges=2, redirecting=("0000:17:00.0",), iommu="off"),
        ),
        clean=with_node(
            on_bare_metal(), pci=PciPath(num_devices=2, num_bridges=2, redirecting=(), iommu="off")
        ),
        without=on_gpu(),
    ),
    "iommu_translates": Case(
        fires=with_node(on_bare_metal(), pci=PciPath(num_devices=2, iommu="translating")),
        clean=with_node(on_bare_metal(), pci=PciPath(num_devices=2, iommu="passthrough")),
        without=on_gpu(),
    ),
    "cores_clocked_low": Case(
        fires=with_node(
            HERE, cpu_clock=CpuClock(driver="acpi-cpufreq", governors={"powersave": 8})
        ),
        clean=with_node(
            HERE, cpu_clock=CpuClock(driver="intel_pstate", governors={"powersave": 8})
        ),
    ),
    "time_stolen": Case(
        fires=with_node(make_facts(cpu=GUEST), steal=Steal(now_fraction=0.2, boot_fraction=0.01)),
        clean=with_node(make_facts(cpu=GUEST), steal=Steal(now_fraction=0.0, boot_fraction=0.01)),
        without=make_facts(cpu=METAL),
    ),
    "processes_few": Case(
        fires=with_node(
            make_facts(run=make_run(num_ranks=4, workers=WORKERS)),
            room=ProcessRoom(group_limit=100, group_used=20),
        ),
        clean=with_node(HERE, room=ProcessRoom(group_limit=4096, group_used=20)),
    ),
    "caches_on_network": Case(
        fires=with_node(
            on_several(make_facts(mounts=(LOCAL_TMP,))), caches=(NETWORK_CACHE, LOCAL_CACHE)
        ),
        clean=with_node(HERE, caches=(LOCAL_CACHE,)),
    ),
}

NODE_FURTHER: dict[str, tuple[CheckFacts, ...]] = {
    "gpu_errors_logged": (
        logged(xid(94), replace(xid(154), words="changed to 0x1 (GPU Reset Required)")),
    ),
    "gpu_memory_taken": (
        taken(),
        taken(replace(STRANGER, is_ours=True)),
    ),
    "fabric_not_ready": (
        with_node(on_gpu(state=GPU_STATE), fabric=Fabric(num_switches=4, is_managed=False)),
    ),
    "mig_on": (
        with_states({"mig": False, "mig_pending": True}),
        with_variable(with_states({"mig": True}), CUDA_VISIBLE_DEVICES="MIG-1a2b"),
    ),
    "interrupts_crowded": (
        with_node(
            HERE,
            nics=(replace(QUEUES, interrupts=((0,), (0,))),),
            has_irqbalance=False,
        ),
    ),
    "cores_clocked_low": (
        with_node(
            HERE,
            cpu_clock=CpuClock(
                driver="intel_pstate",
                governors={"powersave": 8},
                preferences={"power": 8},
                limit_hz=2e9,
                best_hz=4e9,
            ),
        ),
    ),
    "caches_on_network": (
        with_node(HERE, caches=(replace(NETWORK_CACHE, library="hugging face"), LOCAL_CACHE)),
    ),
}

CASES = {**check_cases.CASES, **NODE_CASES}
FURTHER = {**check_cases.FURTHER, **NODE_FURTHER}
NVLINKED = tuple(
    Link(first=f"GPU{i}", second=f"GPU{j}", kind="NV18") for i in range(2) for j in range(i)
)
SOCKET_LOG = make_log(network="Socket")
