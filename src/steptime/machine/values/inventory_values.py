"""What a machine has: its inventory.

Frozen values that survive JSON. What the machine did not tell is None or absent, and `missing` of
the inventory says which part and why, in machine words. What the machine reaches stands in
`ceiling_values`; rates of hardware as sold stand in `core.hardware`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """Caches of one level and kind.

    Attributes:
        level: 1 is the nearest.
        kind: `data`, `instruction` or `unified`.
        size_bytes: size of one of them.
        num: how many there are.
    """

    level: int
    kind: str
    size_bytes: int
    num: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cpu:
    """The processors.

    Attributes:
        model: as the kernel names it.
        architecture: such as `x86_64`.
        num_threads: logical cores of the machine.
        num_usable: those that a process of ours may run on, a quota of its group counted in.
        num_cores: those that share no core.
        num_sockets: packages.
        is_virtual: a hypervisor stands between; None where that is not told.
        flags: of the instruction sets that training makes use of.
        caches: smallest level first.
    """

    model: str | None
    architecture: str
    num_threads: int
    num_usable: int
    num_cores: int | None = None
    num_sockets: int | None = None
    is_virtual: bool | None = None
    flags: tuple[str, ...] = ()
    caches: tuple[Cache, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NumaNode:
    """A NUMA node: cores and the memory that is near them.

    Attributes:
        node: number of the node.
        cpus: its logical cores as the kernel lists them, `0-3,8`.
        memory_bytes: size of its memory.
        distances: to each node, as the kernel weighs them; 10 is itself.
    """

    node: int
    cpus: str
    memory_bytes: int | None = None
    distances: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ram:
    """The memory of the machine, whatever a control group allows of it.

    Attributes:
        total_bytes: size of the memory.
        available_bytes: what can be had without swapping.
        swap_bytes: room for swapping.
    """

    total_bytes: int | None = None
    available_bytes: int | None = None
    swap_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU: as NVML tells of it, or as found on the PCI bus where no driver does.

    Attributes:
        index: NVML's; by order of bus ids where there is no NVML.
        vendor: `nvidia`, `amd`, `intel`, or the PCI number.
        has_driver: NVML speaks for it.
        name: such as `NVIDIA H100 80GB HBM3`; the bus alone tells none.
        uuid: as NVML names it.
        memory_bytes: size of its memory.
        bus_id: such as `0000:3b:00.0`.
        compute_capability: such as `9.0`.
        power_limit_w: what it may draw.
        pcie_generation: of the link now; a sleeping link is slower.
        max_pcie_generation: of the link as built.
        pcie_width, max_pcie_width: lanes now, and as built; a sleeping link may be narrower.
        numa_node: the node it is near; None where the kernel does not say.
        cpus: cores near it, as the kernel lists them.
        used_bytes, busy_fraction: of its memory, and of its time, at that moment.
        has_mig: it is divided into instances (MIG).
    """

    index: int
    vendor: str
    has_driver: bool
    name: str | None = None
    uuid: str | None = None
    memory_bytes: int | None = None
    bus_id: str | None = None
    compute_capability: str | None = None
    power_limit_w: float | None = None
    pcie_generation: int | None = None
    max_pcie_generation: int | None = None
    pcie_width: int | None = None
    max_pcie_width: int | None = None
    numa_node: int | None = None
    cpus: str | None = None
    used_bytes: int | None = None
    busy_fraction: float | None = None
    has_mig: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """How two devices reach each other, in the words of `nvidia-smi topo -m`.

    Attributes:
        first: `GPU0`, or an RDMA device.
        second: another one.
        kind: `NV18` (that many NVLinks), or from near to far `PIX`, `PXB`, `PHB`, `NODE`, `SYS`.
    """

    first: str
    second: str
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Nic:
    """A network interface with hardware behind it.

    Attributes:
        name: the interface.
        is_up: whether its link is up.
        speed_bits_per_s: as the link was agreed.
        driver: the kernel's driver.
        numa_node: the node it is near.
    """

    name: str
    is_up: bool
    speed_bits_per_s: float | None = None
    driver: str | None = None
    numa_node: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RdmaDevice:
    """A device for remote memory.

    Attributes:
        name: such as `mlx5_0`.
        is_active: whether its port is.
        speed_bits_per_s: of its first port.
        link_layer: `InfiniBand`, or `Ethernet` for RoCE.
        nics: interfaces of the same device.
        numa_node: the node it is near.
    """

    name: str
    is_active: bool
    speed_bits_per_s: float | None = None
    link_layer: str | None = None
    nics: tuple[str, ...] = ()
    numa_node: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """A block device.

    Attributes:
        name: the block device.
        size_bytes: its size.
        model: as it names itself.
        transport: `nvme`, `virtio`, `scsi` or what else the kernel tells.
        is_rotational: whether it turns; None where it is virtual.
    """

    name: str
    size_bytes: int | None = None
    model: str | None = None
    transport: str | None = None
    is_rotational: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A file system that is mounted.

    Attributes:
        folder: where it is mounted.
        kind: of file system.
        source: what is mounted.
        is_network: whether it lies behind a network.
        disks: block devices under it.
    """

    folder: str
    kind: str
    source: str
    is_network: bool = False
    disks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFolder:
    """The folder that the training reads from, and the file system it lies on.

    Attributes:
        folder: the data folder, in full.
        mount: what it lies on.
        total_bytes: size of the file system.
        free_bytes: what is free on it for a user.
    """

    folder: str
    mount: Mount | None = None
    total_bytes: int | None = None
    free_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessLimits:
    """What a container, a control group or the shell lets a process have; None is no limit.

    Attributes:
        container: what runs it (`docker`, `kubernetes`, ...); None outside of one, as far as seen.
        group_version: 1 or 2, of the control group that limits memory or cores.
        cpu_quota_cores: core-seconds a second.
        cpus: the cores that are allowed, as the kernel lists them.
        memory_bytes: memory that a control group allows.
        num_processes: threads count too.
        shm_bytes: size of /dev/shm.
        locked_bytes, num_open_files, stack_bytes: soft limits of this shell.
    """

    container: str | None = None
    group_version: int | None = None
    cpu_quota_cores: float | None = None
    cpus: str | None = None
    memory_bytes: int | None = None
    num_processes: int | None = None
    shm_bytes: int | None = None
    locked_bytes: int | None = None
    num_open_files: int | None = None
    stack_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """All that the machine tells of itself.

    Attributes:
        cpu: processors.
        ram: memory.
        limits: what a container, a control group or the shell allows.
        data: the data folder.
        numa: NUMA nodes.
        gpus: GPUs.
        links: how GPUs and RDMA devices reach each other, each pair once.
        nics: network interfaces with hardware behind them.
        rdma: devices for remote memory.
        disks: disks.
        mounts: file systems that data may lie on, the first 64.
        num_mounts: all of them; `mounts` holds those that data may lie on, the first 64.
        nvidia_driver: version of NVIDIA's driver.
        cuda_driver: CUDA version that the driver supports.
        kernel: release of the kernel.
        missing: why a part could not be read, by part (`gpus`, `numa`, `caches`, ...).
    """

    cpu: Cpu
    ram: Ram
    limits: ProcessLimits
    data: DataFolder
    numa: tuple[NumaNode, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    links: tuple[Link, ...] = ()
    nics: tuple[Nic, ...] = ()
    rdma: tuple[RdmaDevice, ...] = ()
    disks: tuple[Disk, ...] = ()
    mounts: tuple[Mount, ...] = ()
    num_mounts: int = 0
    nvidia_driver: str | None = None
    cuda_driver: str | None = None
    kernel: str | None = None
    missing: Mapping[str, str] = field(default_factory=dict)
