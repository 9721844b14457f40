"""What the node says of itself beyond the inventory: kernel log, fabric, ports, interrupts, clocks.

Frozen values that the readers fill and the tests make. None means "could not be read" everywhere,
and `CheckFacts.missing` has the reason; an empty tuple means that it was read and there is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProcess:
    """A process that holds memory of a GPU.

    Attributes:
        pid: as the driver numbers it, which in a container is the host's number.
        is_ours: it runs as this user; None where the process cannot be seen from here.
        used_bytes: memory that it holds; None where the driver does not say.
        name: of its program.
    """

    pid: int
    is_ours: bool | None = None
    used_bytes: int | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class XidCount:
    """Errors of one kind that NVIDIA's driver wrote to the kernel's log for one device.

    Attributes:
        bus_id: of the GPU or NVSwitch as the kernel writes it, `0000:18:00.0`.
        code: number of the Xid of a GPU, or the SXid of a switch.
        num: how often it is in the log.
        last_age_s, first_age_s: time since the last and the first one [s]; None without stamps.
        words: what the driver said the last time, cut short.
    """

    bus_id: str
    code: int
    num: int
    last_age_s: float | None = None
    first_age_s: float | None = None
    words: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelLog:
    """What the kernel's log of this boot says of GPUs.

    Attributes:
        source: the tool that told it, `journalctl` or `dmesg`.
        covers_s: how far back it goes [s]; None without time stamps.
        xids: errors of GPUs, by GPU and number.
        sxids: fatal errors of NVSwitches, by switch and number.
    """

    source: str
    covers_s: float | None = None
    xids: tuple[XidCount, ...] = ()
    sxids: tuple[XidCount, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """NVSwitches of this machine and the service that sets them up.

    Attributes:
        num_switches: NVSwitches on the PCI bus.
        is_managed: the fabric manager runs; None where processes of others cannot be seen.
    """

    num_switches: int = 0
    is_managed: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PciPath:
    """What stands on the PCI paths between GPUs and RDMA devices.

    Attributes:
        num_devices: GPUs and RDMA devices whose place is known.
        num_bridges: bridges above them.
        redirecting: bridges that send traffic between peers up to the root complex (ACS); None
            where the user may not read it.
        iommu: `off`, `passthrough` or `translating`, for the GPUs; None where it is not told.
    """

    num_devices: int = 0
    num_bridges: int = 0
    redirecting: tuple[str, ...] | None = None
    iommu: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuClock:
    """How the kernel chooses the clock of the cores that this process may use.

    Attributes:
        driver: such as `intel_pstate`, `acpi-cpufreq`, `amd-pstate-epp`.
        governors: number of cores by governor.
        preferences: number of cores by energy preference, where the processor chooses.
        limit_hz, best_hz: highest clock that is allowed, and that the cores can reach; the lowest
            of the cores.
    """

    driver: str | None = None
    governors: Mapping[str, int] = field(default_factory=dict)
    preferences: Mapping[str, int] = field(default_factory=dict)
    limit_hz: float | None = None
    best_hz: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Steal:
    """Time that the hypervisor took from the virtual cores, as a share of the time they wanted.

    Attributes:
        now_fraction: over the sample; None where the cores wanted too little to say.
        boot_fraction: since the machine began.
    """

    now_fraction: float | None = None
    boot_fraction: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RdmaPort:
    """A port of an RDMA device.

    Attributes:
        device, port: such as `mlx5_0` and 1.
        kind: type of the device, such as `MT4129`.
        link_layer: `InfiniBand`, or `Ethernet` for RoCE.
        state: `ACTIVE`, `INIT`, `ARMED`, `DOWN`.
        physical: `LinkUp`, `Polling`, `Disabled`, ...
        rate_bits_per_s: of the link.
        width: lanes, 4 in `4X NDR`.
        speed: of a lane, `NDR`.
    """

    device: str
    port: int
    kind: str | None = None
    link_layer: str | None = None
    state: str | None = None
    physical: str | None = None
    rate_bits_per_s: float | None = None
    width: int | None = None
    speed: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NicQueues:
    """A network interface with hardware, that is up: its packet size and who serves it.

    Attributes:
        name: the interface.
        speed_bits_per_s: as the link was agreed.
        mtu_bytes: largest packet.
        interrupts: cores that serve each of its interrupts; None where that is not told.
        near: cores near the device; empty where the kernel names none.
    """

    name: str
    speed_bits_per_s: float | None = None
    mtu_bytes: int | None = None
    interrupts: tuple[tuple[int, ...], ...] | None = None
    near: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRoom:
    """How many processes and threads may be started yet.

    Attributes:
        group_limit, group_used: of the tightest control group.
        user_limit: soft limit of this shell (RLIMIT_NPROC).
        user_used: threads of this user; None where processes cannot be seen.
    """

    group_limit: int | None = None
    group_used: int | None = None
    user_limit: int | None = None
    user_used: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheFolder:
    """Where a library keeps what it compiled or downloaded.

    Attributes:
        library: `torch.compile`, `triton`, `cuda`, `extensions` or `hugging face`.
        variable: that moves it.
        folder: where it is now.
        kind: of file system; None where that is not known.
        is_network: it lies behind a network.
    """

    library: str
    variable: str
    folder: str
    kind: str | None = None
    is_network: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerMemory:
    """What lets an RDMA device reach into the memory of a GPU.

    Attributes:
        module: of the kernel, `nvidia_peermem` or an older one; None without.
        is_open_driver: NVIDIA's open kernel modules, which offer memory by DMA-BUF; None where the
            driver does not say.
        kernel: release of the kernel, (5, 15).
    """

    module: str | None = None
    is_open_driver: bool | None = None
    kernel: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """All that the readers of a node found."""

    kernel_log: KernelLog | None = None
    fabric: Fabric | None = None
    pci: PciPath | None = None
    cpu_clock: CpuClock | None = None
    steal: Steal | None = None
    rdma_ports: tuple[RdmaPort, ...] | None = None
    nics: tuple[NicQueues, ...] | None = None
    has_irqbalance: bool | None = None
    room: ProcessRoom | None = None
    caches: tuple[CacheFolder, ...] | None = None
    peer_memory: PeerMemory | None = None
