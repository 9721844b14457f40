"""The facts that the checks judge: values that the readers fill and the tests make.

None means "not known" everywhere; `missing` has the reasons, by part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from steptime.diagnose.values.finding import Diagnosis
from steptime.machine.values.check_values import Basis, MachineSite, NcclChoice
from steptime.machine.values.inventory_values import Inventory
from steptime.machine.values.node_facts import GpuProcess, NodeFacts
from steptime.measure.values.measurement import Measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """A package with which torch was released, and the version that is installed beside it."""

    name: str
    wanted: str
    installed: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Software:
    """What torch reports of itself under the user's Python, in the environment of this shell.

    Attributes:
        python: path of the interpreter.
        cuda, hip: versions that torch was built with; None for a build without.
        cudnn_built, cudnn_here: the versions that torch was built with, and that it loaded.
        nccl: version of NCCL; `has_nccl` is False in a build without it.
        architectures: GPU architectures that it holds code for, such as `sm_90`, `compute_90`.
        num_devices: GPUs that it can use; `cuda_error` says why there are none.
        num_threads: threads of one operator.
        matmul_precision: precision of float32 products when a script starts.
        cudnn_benchmark: cuDNN's benchmark switch when a script starts.
        pins: NVIDIA's packages that torch depends on.
        companions: packages that go with one build of torch, with their versions.
        installer: what installed torch: `pip`, `uv` or `conda`.
        has_pip: this Python has pip.
        is_writable: its packages are this user's, who may change them.
        is_managed: the distribution keeps its packages (PEP 668).
        cudnn_folders: folders of LD_LIBRARY_PATH that hold a cuDNN.
    """

    python: str
    torch: str
    python_version: str | None = None
    cuda: str | None = None
    hip: str | None = None
    cudnn_built: tuple[int, ...] | None = None
    cudnn_here: tuple[int, ...] | None = None
    nccl: str | None = None
    has_nccl: bool | None = None
    architectures: tuple[str, ...] = ()
    num_devices: int | None = None
    cuda_error: str | None = None
    num_threads: int | None = None
    matmul_precision: str | None = None
    cudnn_benchmark: bool | None = None
    pins: tuple[Pin, ...] = ()
    companions: tuple[tuple[str, str], ...] = ()
    installer: str | None = None
    has_pip: bool = False
    is_writable: bool = False
    is_managed: bool = False
    cudnn_folders: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """The free space of a folder's file system; `num_free` counts files that can be made."""

    what: str
    folder: str
    total_bytes: int
    free_bytes: int
    num_files: int | None = None
    num_free: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """What the kernel reports, in part over a second.

    Attributes:
        os_id: id of the distribution, such as `debian`, `ubuntu`, `rhel`.
        huge_pages: setting of huge pages: `always`, `madvise` or `never`.
        numa_balancing: whether the kernel moves memory to the threads that use it.
        swap_used_bytes, swap_in_bytes_per_s: swap in use, and what is read from it, now.
        others_cores: cores that processes other than ours keep busy.
        throttled_fraction: share of the periods in which the quota stopped this group.
        group_used_bytes: memory of the group that the kernel cannot take back.
        locked_hard_bytes, num_open_files_hard, stack_hard_bytes: how far the shell may raise its
            limits; -1: any.
        cpuset: cores that this process's group may use, as the kernel lists them.
        site_variables: files of the machine that set variables for all users, by variable.
        gpu_settings_at_start: files that call nvidia-smi when the machine starts, or by the clock.
        has_nvidia_module: NVIDIA's driver is in the kernel.
        has_nvidia_files, has_infiniband_files: their devices are in /dev.
    """

    os_id: str | None = None
    huge_pages: str | None = None
    numa_balancing: bool | None = None
    swap_used_bytes: int | None = None
    swap_in_bytes_per_s: float | None = None
    others_cores: float | None = None
    throttled_fraction: float | None = None
    group_used_bytes: int | None = None
    locked_hard_bytes: int | None = None
    num_open_files_hard: int | None = None
    stack_hard_bytes: int | None = None
    cpuset: str | None = None
    gpu_settings_at_start: tuple[str, ...] = ()
    site_variables: Mapping[str, str] = field(default_factory=dict)
    has_nvidia_module: bool = False
    has_nvidia_files: bool = False
    has_infiniband_files: bool = False
    spaces: tuple[Space, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuState:
    """The present state of an NVIDIA GPU.

    `held_down` has NVML's words for why the clock is low. `num_uncorrected` counts memory errors
    since the driver was loaded, `num_ever` those of the GPU's life; rows are those to be replaced.
    `power_limit_w` is what is enforced, `requested_power_limit_w` what the driver was given.
    `mig` says whether it is divided into instances, `mig_pending` whether it will be after a reset.
    `processes` hold memory of it. `nvlinks_up` of its `nvlinks` are active. `fabric` is the state
    of NVSwitches: `completed`, `in_progress`, `not_started`, `not_supported` or `failed`.
    """

    index: int
    persistence: bool | None = None
    power_limit_w: float | None = None
    default_power_limit_w: float | None = None
    clock_mhz: int | None = None
    default_clock_mhz: int | None = None
    requested_power_limit_w: float | None = None
    max_power_limit_w: float | None = None
    num_processes: int | None = None
    held_down: tuple[str, ...] | None = None
    busy_fraction: float | None = None
    temperature_c: int | None = None
    num_uncorrected: int | None = None
    num_ever: int | None = None
    rows_pending: bool | None = None
    rows_failed: bool | None = None
    mig: bool | None = None
    mig_pending: bool | None = None
    processes: tuple[GpuProcess, ...] | None = None
    nvlinks_up: int | None = None
    nvlinks: int | None = None
    fabric: str | None = None

    @property
    def is_idle(self) -> bool:
        """Return whether it is known that nothing runs on it."""
        return self.num_processes == 0 and self.busy_fraction == 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Interface:
    """A network interface with an address.

    Attributes:
        name: the interface.
        is_up: whether its link is up.
        is_hardware: it is a device, or a bond or VLAN over one; bridges, tunnels and ends of pairs
            are not.
        speed_bits_per_s: as its driver says.
        networks: its IPv4 addresses with their networks, such as `10.0.0.5/24`.
    """

    name: str
    is_up: bool
    is_hardware: bool
    speed_bits_per_s: float | None = None
    networks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A route of the kernel's: what goes to this network leaves through this interface."""

    interface: str
    network: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """A TCP port with a listener; it is not `is_local` if other machines can reach it."""

    number: int
    is_local: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Sshd:
    """The configuration of the SSH server; None where it says nothing.

    `has_own_key` says whether this user has a key with which to log in.
    """

    file: str
    has_drop_ins: bool = False
    port: int = 22
    passwords: bool | None = None
    has_own_key: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRun:
    """The last run of the store; `script` is the text of the files that its command names."""

    measurement: Measurement
    diagnosis: Diagnosis
    environment: Mapping[str, str] = field(default_factory=dict)
    script: str = ""

    @property
    def device(self) -> str | None:
        """Return `cuda` or `cpu`."""
        ranks = self.measurement.ranks
        return ranks[0].device.split(":")[0] if ranks else None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckFacts:
    """All facts that the checks judge.

    Attributes:
        environment: variables of this shell.
        site: whose machine it is.
        hosts: addresses of /etc/hosts by name.
        ports: ports with listeners; None where they cannot be read.
        node: what the node says of itself beyond the inventory.
        missing: why a part is missing, by part: `software`, `run`, `nccl_log`, `sshd`, and the
            names of `NodeFacts`.
    """

    inventory: Inventory
    environment: Mapping[str, str] = field(default_factory=dict)
    system: System = field(default_factory=System)
    site: MachineSite = field(default_factory=MachineSite)
    software: Software | None = None
    gpu_states: tuple[GpuState, ...] = ()
    interfaces: tuple[Interface, ...] = ()
    routes: tuple[Route, ...] = ()
    hosts: Mapping[str, str] = field(default_factory=dict)
    ports: tuple[Port, ...] | None = None
    sshd: Sshd | None = None
    nccl_log: NcclChoice | None = None
    run: LastRun | None = None
    node: NodeFacts = field(default_factory=NodeFacts)
    missing: Mapping[str, str] = field(default_factory=dict)

    @property
    def basis(self) -> Basis:
        """Return the part of the facts that is shown beside the checks."""
        software = self.software
        return Basis(
            python=self.missing.get("python") if software is None else software.python,
            torch=None if software is None else software.torch,
            missing=self.missing.get("software"),
            detail=self.missing.get("software_detail"),
            run_id=None if self.run is None else self.run.measurement.run_id,
            nccl=self.nccl_log,
            site=self.site,
        )
