"""Planted machines: for each check one where it fires, one that is clean, one without the thing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from steptime.core.evidence import Evidence
from steptime.core.interval import Interval
from steptime.diagnose.values.finding import BottleneckKind, Diagnosis, Finding, Severity, Shift
from steptime.machine.read.read_site import scheduler_of_job
from steptime.machine.values.check_facts import (
    CheckFacts,
    GpuState,
    Interface,
    LastRun,
    Pin,
    Port,
    Software,
    Space,
    Sshd,
    System,
)
from steptime.machine.values.check_values import NcclChoice
from steptime.machine.values.inventory_values import (
    Cpu,
    DataFolder,
    Disk,
    Gpu,
    Inventory,
    Link,
    Mount,
    Nic,
    NumaNode,
    ProcessLimits,
    Ram,
    RdmaDevice,
)
from steptime.measure.values.machine_load import WorkerSummary
from steptime.measure.values.measurement import Phase
from steptime.measure.values.model.work import ClassCount, Count
from steptime.measure.values.observations import MemoryUse
from unit.builders import make_measurement, make_rank

GIB = 1 << 30
AMX = ("avx2", "avx512f", "amx_bf16")


def make_inventory(**parts: Any) -> Inventory:
    """A quiet machine of 8 cores and 64 GiB, with no GPU."""
    cpu = Cpu(model="Xeon", architecture="x86_64", num_threads=8, num_usable=8, num_cores=8)
    ram = Ram(total_bytes=64 * GIB, available_bytes=50 * GIB, swap_bytes=0)
    limits = ProcessLimits(
        cpus="0-7", shm_bytes=32 * GIB, num_open_files=65536, stack_bytes=8 << 20
    )
    data = DataFolder(
        folder="/data", mount=Mount(folder="/", kind="ext4", source="/dev/vda", disks=("vda",))
    )
    given = {"cpu": cpu, "ram": ram, "limits": limits, "data": data}
    return Inventory(**{**given, **parts})


def make_gpu(index: int = 0, **fields: Any) -> Gpu:
    given = {
        "index": index,
        "vendor": "nvidia",
        "has_driver": True,
        "name": "NVIDIA H100",
        "uuid": f"GPU-{index}abc",
        "memory_bytes": 80 * GIB,
        "bus_id": "0000:3b:00.0",
        "compute_capability": "9.0",
        "pcie_width": 16,
        "max_pcie_width": 16,
    }
    return Gpu(**{**given, **fields})


def make_software(**fields: Any) -> Software:
    """A torch with CUDA that sees one GPU, with 8 threads."""
    given = {
        "python": "/opt/env/bin/python",
        "torch": "2.13.0+cu130",
        "cuda": "13.0",
        "cudnn_built": (9, 10, 0),
        "cudnn_here": (9, 12, 0),
        "nccl": "2.27.5",
        "has_nccl": True,
        "architectures": ("sm_80", "sm_90", "sm_100", "compute_100"),
        "num_devices": 1,
        "num_threads": 8,
        "matmul_precision": "high",
        "installer": "pip",
        "has_pip": True,
        "is_writable": True,
        "pins": (Pin(name="nvidia-nccl-cu13", wanted="2.27.5", installed="2.27.5"),),
    }
    return Software(**{**given, **fields})


CPU_TORCH = make_software(
    torch="2.13.0+cpu", cuda=None, num_devices=None, architectures=(), pins=(), has_nccl=False
)


def make_system(**fields: Any) -> System:
    given = {
        "os_id": "debian",
        "huge_pages": "madvise",
        "swap_used_bytes": 0,
        "swap_in_bytes_per_s": 0.0,
        "others_cores": 0.0,
        "spaces": (make_space(),),
    }
    return System(**{**given, **fields})


def make_space(**fields: Any) -> Space:
    given = {
        "what": "data",
        "folder": "/data",
        "total_bytes": 1000 * GIB,
        "free_bytes": 500 * GIB,
        "num_files": 1_000_000,
        "num_free": 900_000,
    }
    return Space(**{**given, **fields})


def make_run(*findings: Finding, script: str = "", **fields: Any) -> LastRun:
    measurement = make_measurement(**fields)
    diagnosis = Diagnosis(
        schema=1, run_id=measurement.run_id, kind=BottleneckKind.BALANCED, findings=findings
    )
    return LastRun(measurement=measurement, diagnosis=diagnosis, script=script)


def make_count(*, dtype: str = "fp32", convolution: int = 0) -> Count:
    return Count(
        forward=100,
        backward=200,
        recomputed=0,
        macs=150,
        classes=(ClassCount(name="convolution", num=1, flops=convolution),),
        by_dtype={dtype: 300},
    )


def make_facts(
    *,
    system: System | None = None,
    software: Software | None = CPU_TORCH,
    **parts: Any,
) -> CheckFacts:
    """The quiet machine; what is no field of `CheckFacts` is one of its inventory."""
    of_facts = {name: parts.pop(name) for name in list(parts) if name in CheckFacts.__slots__}
    inventory = of_facts.pop("inventory", None) or make_inventory(**parts)
    return CheckFacts(
        inventory=inventory,
        system=system or make_system(),
        software=software,
        **{"ports": (), **of_facts},
    )


def on_gpu(
    *gpus: Gpu, state: GpuState | None = None, software: Software | None = None, **parts: Any
) -> CheckFacts:
    """The machine with GPUs, a driver, and a torch that sees them."""
    return make_facts(
        gpus=gpus or (make_gpu(),),
        gpu_states=() if state is None else (state,),
        software=software or make_software(),
        nvidia_driver="580.65.06",
        cuda_driver="13.0",
        **parts,
    )


def without_driver(word: str = "nvml_error_12", **parts: Any) -> CheckFacts:
    return make_facts(
        inventory=make_inventory(
            gpus=(make_gpu(has_driver=False, name=None),),
            missing={"gpus": word},
            **parts.pop("of_inventory", {}),
        ),
        **parts,
    )


def with_variable(facts: CheckFacts, **variables: str) -> CheckFacts:
    job = scheduler_of_job(variables)
    site = facts.site if job is None else replace(facts.site, scheduler=job, in_job=True)
    return replace(facts, environment=variables, site=site)


def on_several(facts: CheckFacts, **variables: str) -> CheckFacts:
    """The same machine, one of several of a job."""
    return with_variable(facts, SLURM_NNODES="4", **variables)


def limited(**fields: Any) -> ProcessLimits:
    return replace(make_inventory().limits, **fields)


GPU_STATE = GpuState(
    index=0,
    persistence=True,
    power_limit_w=700.0,
    default_power_limit_w=700.0,
    clock_mhz=1980,
    default_clock_mhz=1980,
    held_down=(),
    busy_fraction=0.0,
    temperature_c=40,
    num_uncorrected=0,
    num_ever=0,
    rows_pending=False,
    rows_failed=False,
)
ACTIVE = RdmaDevice(name="mlx5_0", is_active=True, speed_bits_per_s=4e11, link_layer="InfiniBand")
ETH = Nic(name="eth0", is_up=True, speed_bits_per_s=1e10)
FILES = make_system(has_infiniband_files=True)
SLOW = Interface(
    name="eth0",
    is_up=True,
    is_hardware=True,
    speed_bits_per_s=1e9,
    networks=("192.168.1.5/24",),
)
FAST = Interface(
    name="eth1", is_up=True, is_hardware=True, speed_bits_per_s=1e11, networks=("10.1.0.5/16",)
)
NODES = (NumaNode(node=0, cpus="0-3"), NumaNode(node=1, cpus="4-7"))
NVLINK = (Link(first="GPU0", second="GPU1", kind="NV18"),)
CUDA_RANK = replace(make_rank(), device="cuda", input_shapes=("64x3x224x224 float32",))


def make_log(**fields: Any) -> NcclChoice:
    given = {
        "path": "nccl.log",
        "network": "IB",
        "transports": {"P2P/CUMEM": 32, "NET/IB/GDRDMA": 4},
        "num_nodes": 2,
        "has_rings": True,
        "has_trees": True,
    }
    return NcclChoice(**{**given, **fields})


def faulting_run(fraction: float) -> LastRun:
    memory = MemoryUse(
        first_bytes=1, last_bytes=1, peak_bytes=1, num_samples=9, minor_faults_per_step=18_000.0
    )
    finding = Finding(
        kind=BottleneckKind.HOST_BOUND,
        cause="page_faults",
        severity=Severity.WARNING,
        evidence=(Evidence(name="page_faults", value=fraction, unit="fraction"),),
    )
    return make_run(
        *([finding] if fraction else []), ranks=(replace(make_rank(), host_memory=memory),)
    )


def slowed_run() -> LastRun:
    run = make_run()
    shift = Shift(
        rank=0,
        index=300,
        t_unix_s=1.0,
        before_s=0.1,
        after_s=0.14,
        ratio=Interval(estimate=1.4, low=1.35, high=1.45, n=600),
        causes=("throttle",),
    )
    return replace(run, diagnosis=replace(run.diagnosis, shifts=(shift,)))


def waiting_run(fraction: float) -> LastRun:
    return make_run(phases=(Phase(name="input_wait", median_s=0.1, fraction=fraction),))


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Facts under which a check fires, is clean, and, where there can be, does not apply."""

    fires: CheckFacts
    clean: CheckFacts
    without: CheckFacts | None = None
    severity: Severity = Severity.WARNING


HERE = make_facts()
CRITICAL, INFO = Severity.CRITICAL, Severity.INFO
DOCKER = limited(container="docker")
AMX_CPU = Cpu(model="Xeon", architecture="x86_64", num_threads=8, num_usable=8, flags=AMX)
NFS = DataFolder(
    folder="/data", mount=Mount(folder="/data", kind="nfs4", source="s:/", is_network=True)
)


def variable(
    code: str, *, off: str = "", severity: Severity = Severity.WARNING, gpu: bool = False, **on: str
) -> tuple[str, Case]:
    base = on_gpu() if gpu else HERE
    return code, Case(
        fires=with_variable(base, **on),
        clean=with_variable(base, **dict.fromkeys(on, off)) if off else base,
        without=with_variable(HERE, **on) if gpu else None,
        severity=severity,
    )


CASES: dict[str, Case] = {
    "driver_missing": Case(fires=without_driver(), clean=on_gpu(), without=HERE, severity=CRITICAL),
    "driver_silent": Case(
        fires=without_driver("nvml_error_18", system=make_system(has_nvidia_module=True)),
        clean=on_gpu(system=make_system(has_nvidia_module=True)),
        without=HERE,
        severity=CRITICAL,
    ),
    "cpu_build_beside_gpu": Case(
        fires=on_gpu(software=CPU_TORCH), clean=on_gpu(), without=HERE, severity=CRITICAL
    ),
    "driver_too_old": Case(
        fires=replace(
            on_gpu(software=make_software(num_devices=0)),
            inventory=make_inventory(gpus=(make_gpu(),), nvidia_driver="550.54.15"),
        ),
        clean=on_gpu(),
        without=HERE,
        severity=CRITICAL,
    ),
    "torch_sees_no_gpu": Case(
        fires=on_gpu(software=make_software(num_devices=0, cuda_error="error 802")),
        clean=on_gpu(),
        without=HERE,
        severity=CRITICAL,
    ),
    "architecture_not_built": Case(
        fires=on_gpu(
            make_gpu(compute_capability="12.0"),
            software=make_software(architectures=("sm_80", "sm_90")),
        ),
        clean=on_gpu(make_gpu(compute_capability="8.6")),
        without=HERE,
        severity=CRITICAL,
    ),
    "cudnn_differs": Case(
        fires=on_gpu(software=make_software(cudnn_here=(8, 9, 2))),
        clean=on_gpu(),
        without=HERE,
        severity=CRITICAL,
    ),
    "cuda_packages_differ": Case(
        fires=on_gpu(
            software=make_software(
                pins=(Pin(name="nvidia-nccl-cu13", wanted="2.27.5", installed="2.26.2"),)
            )
        ),
        clean=on_gpu(),
        without=HERE,
        severity=INFO,
    ),
    "torch_without_nccl": Case(
        fires=on_gpu(make_gpu(), make_gpu(1), software=make_software(has_nccl=False)),
        clean=on_gpu(make_gpu(), make_gpu(1)),
        without=on_gpu(),
    ),
    "old_torch": Case(
        fires=on_gpu(software=make_software(torch="2.1.2+cu121")), clean=on_gpu(), without=HERE
    ),
    "matmul_precision_highest": Case(
        fires=on_gpu(run=make_run(ranks=(CUDA_RANK,), count=make_count())),
        clean=on_gpu(run=make_run(ranks=(CUDA_RANK,), count=make_count(dtype="tf32"))),
        without=HERE,
    ),
    "cudnn_benchmark_off": Case(
        fires=on_gpu(run=make_run(ranks=(CUDA_RANK,), count=make_count(convolution=200))),
        clean=on_gpu(
            run=make_run(
                ranks=(CUDA_RANK,),
                count=make_count(convolution=200),
                script="torch.backends.cudnn.benchmark = True",
            )
        ),
        without=HERE,
    ),
    "threads_over_cores": Case(
        fires=make_facts(software=replace(CPU_TORCH, num_threads=64)), clean=HERE
    ),
    "spin_waiting": Case(
        fires=make_facts(system=make_system(others_cores=6.0)),
        clean=HERE,
        without=make_facts(software=replace(CPU_TORCH, num_threads=1)),
    ),
    "cpu_quota_below_cores": Case(
        fires=make_facts(limits=limited(cpu_quota_cores=2.0)),
        clean=make_facts(limits=limited(cpu_quota_cores=8.0)),
        without=HERE,
    ),
    "affinity_across_nodes": Case(
        fires=on_gpu(make_gpu(), make_gpu(1), numa=NODES),
        clean=make_facts(numa=NODES, limits=limited(cpus="0-3")),
        without=HERE,
    ),
    "cores_far_from_gpu": Case(
        fires=on_gpu(make_gpu(cpus="4-7"), limits=limited(cpus="0-3")),
        clean=on_gpu(make_gpu(cpus="0-3"), limits=limited(cpus="0-3")),
        without=HERE,
    ),
    "threads_pinned_alike": Case(
        fires=with_variable(
            make_facts(run=make_run(num_ranks=2)), KMP_AFFINITY="granularity=fine,compact"
        ),
        clean=with_variable(HERE, OMP_PROC_BIND="true"),
        without=HERE,
        severity=INFO,
    ),
    "default_allocator": Case(
        fires=make_facts(run=faulting_run(0.12)), clean=make_facts(run=faulting_run(0.0))
    ),
    "huge_pages_off": Case(
        fires=make_facts(system=make_system(huge_pages="never")), clean=HERE, severity=INFO
    ),
    "swap_in_use": Case(
        fires=make_facts(
            ram=Ram(total_bytes=64 * GIB, swap_bytes=8 * GIB),
            system=make_system(swap_used_bytes=4 * GIB, swap_in_bytes_per_s=5e6),
        ),
        clean=make_facts(ram=Ram(total_bytes=64 * GIB, swap_bytes=8 * GIB)),
        without=HERE,
    ),
    "group_memory_tight": Case(
        fires=make_facts(
            limits=limited(memory_bytes=16 * GIB), system=make_system(group_used_bytes=15 * GIB)
        ),
        clean=make_facts(
            limits=limited(memory_bytes=16 * GIB), system=make_system(group_used_bytes=4 * GIB)
        ),
        without=HERE,
    ),
    "numa_balancing_on": Case(
        fires=make_facts(
            gpus=(make_gpu(vendor="amd", has_driver=False),),
            numa=NODES,
            system=make_system(numa_balancing=True),
        ),
        clean=make_facts(
            gpus=(make_gpu(vendor="amd", has_driver=False),),
            numa=NODES,
            system=make_system(numa_balancing=False),
        ),
        without=HERE,
    ),
    "shm_small": Case(
        fires=make_facts(limits=limited(container="docker", shm_bytes=64 << 20)), clean=HERE
    ),
    "locked_memory_low": Case(
        fires=on_several(
            make_facts(rdma=(ACTIVE,), system=FILES, limits=limited(locked_bytes=8 << 20))
        ),
        clean=make_facts(rdma=(ACTIVE,)),
        without=HERE,
    ),
    "open_files_low": Case(fires=make_facts(limits=limited(num_open_files=256)), clean=HERE),
    "stack_small": Case(fires=make_facts(limits=limited(stack_bytes=1 << 20)), clean=HERE),
    "container_without_gpus": Case(
        fires=without_driver(of_inventory={"limits": DOCKER}),
        clean=on_gpu(limits=DOCKER),
        without=HERE,
        severity=CRITICAL,
    ),
    "rdma_unused": Case(
        fires=make_facts(
            rdma=(ACTIVE,), nics=(ETH,), system=FILES, nccl_log=make_log(network="Socket")
        ),
        clean=make_facts(rdma=(ACTIVE,), system=FILES, nccl_log=make_log()),
        without=HERE,
        severity=CRITICAL,
    ),
    "infiniband_disabled": Case(
        fires=on_several(make_facts(rdma=(ACTIVE,), system=FILES), NCCL_IB_DISABLE="1"),
        clean=with_variable(make_facts(rdma=(ACTIVE,)), NCCL_IB_DISABLE="0"),
        without=with_variable(HERE, NCCL_IB_DISABLE="1"),
        severity=CRITICAL,
    ),
    "slow_interface": Case(
        fires=on_several(make_facts(interfaces=(SLOW, FAST)), NCCL_SOCKET_IFNAME="eth0"),
        clean=make_facts(interfaces=(SLOW, FAST)),
        without=make_facts(interfaces=(SLOW,)),
    ),
    "gpu_ranks_on_gloo": Case(
        fires=on_gpu(
            run=make_run(ranks=(CUDA_RANK,), num_ranks=2, script='dist.init_process_group("gloo")')
        ),
        clean=on_gpu(
            run=make_run(ranks=(CUDA_RANK,), num_ranks=2, script='dist.init_process_group("nccl")')
        ),
        without=HERE,
        severity=CRITICAL,
    ),
    "peers_through_host": Case(
        fires=on_gpu(
            make_gpu(),
            make_gpu(1),
            links=NVLINK,
            nccl_log=make_log(transports={"SHM/direct": 8}),
        ),
        clean=on_gpu(make_gpu(), make_gpu(1), links=NVLINK, nccl_log=make_log()),
        without=on_gpu(),
    ),
    "no_gpu_direct": Case(
        fires=on_gpu(rdma=(ACTIVE,), nccl_log=make_log(transports={"NET/IB": 4})),
        clean=on_gpu(rdma=(ACTIVE,), nccl_log=make_log()),
        without=on_gpu(),
    ),
    "clocks_held_down": Case(
        fires=on_gpu(state=replace(GPU_STATE, held_down=("thermal",), temperature_c=91)),
        clean=on_gpu(state=replace(GPU_STATE, held_down=("power_cap",))),
        without=HERE,
    ),
    "power_limit_lowered": Case(
        fires=on_gpu(state=replace(GPU_STATE, power_limit_w=400.0)),
        clean=on_gpu(state=GPU_STATE),
        without=HERE,
    ),
    "clocks_set_low": Case(
        fires=on_gpu(state=replace(GPU_STATE, clock_mhz=1200)),
        clean=on_gpu(state=GPU_STATE),
        without=HERE,
    ),
    "persistence_off": Case(
        fires=on_gpu(state=replace(GPU_STATE, persistence=False)),
        clean=on_gpu(state=GPU_STATE),
        without=HERE,
        severity=INFO,
    ),
    "memory_errors": Case(
        fires=on_gpu(state=replace(GPU_STATE, num_uncorrected=2)),
        clean=on_gpu(state=GPU_STATE),
        without=HERE,
        severity=CRITICAL,
    ),
    "pcie_link_narrow": Case(
        fires=on_gpu(make_gpu(pcie_width=4), state=replace(GPU_STATE, busy_fraction=0.9)),
        clean=on_gpu(state=GPU_STATE),
        without=HERE,
    ),
    "gpus_hidden": Case(
        fires=with_variable(on_gpu(), CUDA_VISIBLE_DEVICES=""),
        clean=with_variable(on_gpu(), CUDA_VISIBLE_DEVICES="0"),
        without=with_variable(HERE, CUDA_VISIBLE_DEVICES=""),
        severity=CRITICAL,
    ),
    "data_on_network": Case(
        fires=make_facts(data=NFS, run=waiting_run(0.4)),
        clean=make_facts(data=NFS, run=waiting_run(0.01)),
    ),
    "disk_nearly_full": Case(
        fires=make_facts(system=make_system(spaces=(make_space(free_bytes=5 * GIB),))), clean=HERE
    ),
    "data_on_turning_disk": Case(
        fires=make_facts(disks=(Disk(name="vda", is_rotational=True),), run=waiting_run(0.4)),
        clean=make_facts(disks=(Disk(name="vda", is_rotational=False),)),
        without=make_facts(data=NFS),
    ),
    "ssh_passwords": Case(
        fires=make_facts(
            ports=(Port(number=22, is_local=False),), sshd=Sshd(file="/etc/ssh/sshd_config")
        ),
        clean=make_facts(
            ports=(Port(number=22, is_local=False),),
            sshd=Sshd(file="/etc/ssh/sshd_config", passwords=False),
        ),
        without=make_facts(missing={"sshd": "no_file"}),
    ),
    "ports_open": Case(
        fires=make_facts(ports=(Port(number=8265, is_local=False),)),
        clean=make_facts(ports=(Port(number=8265, is_local=True),)),
        without=make_facts(ports=(Port(number=8265, is_local=False),), limits=DOCKER),
    ),
    **dict(
        (
            variable(
                "launch_blocking", CUDA_LAUNCH_BLOCKING="1", off="0", gpu=True, severity=CRITICAL
            ),
            variable("nccl_verbose", NCCL_DEBUG="INFO", off="WARN", severity=INFO),
            variable("distributed_debug", TORCH_DISTRIBUTED_DEBUG="DETAIL", off="OFF"),
            variable(
                "no_memory_caching", PYTORCH_NO_CUDA_MEMORY_CACHING="1", gpu=True, severity=CRITICAL
            ),
            variable("tf32_forbidden", NVIDIA_TF32_OVERRIDE="0", off="1", gpu=True),
            variable("compile_disabled", TORCHDYNAMO_DISABLE="1", off="0"),
            variable("compile_debug", TORCH_LOGS="dynamo", severity=INFO),
            variable("library_verbose", ONEDNN_VERBOSE="1", off="0"),
            variable("malloc_debug", MALLOC_PERTURB_="165", off="0"),
            variable("python_debug", PYTHONDEVMODE="1", severity=INFO),
            variable(
                "modules_loaded_eagerly",
                CUDA_MODULE_LOADING="EAGER",
                off="LAZY",
                gpu=True,
                severity=INFO,
            ),
            variable("peer_access_disabled", NCCL_P2P_DISABLE="1", off="0", gpu=True),
            variable("nccl_choice_forced", NCCL_ALGO="Ring", gpu=True, severity=INFO),
        )
    ),
}

WORKERS = WorkerSummary(
    num_workers=2, num_batches=10, fetch_s_per_batch=0.1, collate_s_per_batch=0.0
)

PEAK = MemoryUse(first_bytes=1, last_bytes=1, peak_bytes=15 * GIB, num_samples=9)
FURTHER: dict[str, tuple[CheckFacts, ...]] = {
    "driver_silent": (
        without_driver("nvml_error_999", system=make_system(has_nvidia_module=True)),
    ),
    "matmul_precision_highest": (on_gpu(software=make_software(matmul_precision="highest")),),
    "spin_waiting": (
        make_facts(system=make_system(others_cores=6.0), run=make_run(others_cores=2.0)),
    ),
    "cpu_quota_below_cores": (
        make_facts(limits=limited(cpu_quota_cores=2.0), system=make_system(throttled_fraction=0.4)),
    ),
    "group_memory_tight": (
        on_gpu(limits=limited(memory_bytes=32 * GIB)),
        make_facts(
            limits=limited(memory_bytes=16 * GIB),
            run=make_run(ranks=(replace(make_rank(), host_memory=PEAK),)),
        ),
    ),
    "rdma_unused": (make_facts(rdma=(ACTIVE,)),),
    "slow_interface": (
        with_variable(make_facts(interfaces=(SLOW, FAST)), NCCL_SOCKET_IFNAME="=ens5"),
    ),
    "peers_through_host": (
        on_gpu(
            make_gpu(),
            make_gpu(1),
            nccl_log=make_log(algorithms=("AllReduce of 1024 bytes by TREE",)),
        ),
    ),
    "no_gpu_direct": (
        on_gpu(rdma=(ACTIVE,), nccl_log=make_log(algorithms=("AllReduce of 1024 bytes by TREE",))),
    ),
    "clocks_held_down": (on_gpu(state=GPU_STATE, run=slowed_run()),),
    "disk_nearly_full": (make_facts(system=make_system(spaces=(make_space(num_free=10),))),),
}
"""Machines for checks that see one thing here and another there."""
