"""GPUs as NVML describes them, or as the PCI bus does where NVML cannot.

In: NVIDIA's own binding, initialized, and the kernel's files. Out: `Gpu` values and versions. It is
quite ordinary that a device does not report something or that a driver is broken. `topology` finds
how devices reach each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steptime.machine._files import KernelFiles, names_in, read_int, read_text
from steptime.machine.values.inventory_values import Gpu

MAX_GPUS = 64

_VENDORS = {"0x10de": "nvidia", "0x1002": "amd", "0x8086": "intel"}
# Display controllers (VGA, 3D, other) and processing accelerators, by PCI class code.
_CLASSES = ("0x0300", "0x0302", "0x0380", "0x1200")


@dataclass(frozen=True, slots=True, kw_only=True)
class Handle:
    """A GPU and NVML's handle for it."""

    gpu: Gpu
    nvml: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundGpus:
    """What was found: GPUs, NVML's handles, versions, and why NVML is silent."""

    gpus: tuple[Gpu, ...] = ()
    handles: tuple[Handle, ...] = ()
    driver: str | None = None
    cuda: str | None = None
    missing: str | None = None


def read_gpus(kernel: KernelFiles, nvml: Any) -> FoundGpus:
    """Return the GPUs.

    Args:
        kernel: where the kernel's files are.
        nvml: the binding, or why there is none, a machine word.
    """
    on_bus = _on_bus(kernel)
    if isinstance(nvml, str):
        has_nvidia = any(gpu.vendor == "nvidia" for gpu in on_bus)
        return FoundGpus(gpus=on_bus, missing=nvml if has_nvidia or _has_driver(kernel) else None)
    num = ask(nvml, "nvmlDeviceGetCount")
    handles = [ask(nvml, "nvmlDeviceGetHandleByIndex", i) for i in range(min(num or 0, MAX_GPUS))]
    ours = tuple(
        Handle(gpu=_gpu(nvml, handle, index, kernel), nvml=handle)
        for index, handle in enumerate(handles)
        if handle is not None
    )
    others = tuple(gpu for gpu in on_bus if gpu.vendor != "nvidia" or not ours)
    version = ask(nvml, "nvmlSystemGetCudaDriverVersion_v2")
    return FoundGpus(
        gpus=(*(one.gpu for one in ours), *others),
        handles=ours,
        driver=as_text(ask(nvml, "nvmlSystemGetDriverVersion")),
        cuda=f"{version // 1000}.{version % 1000 // 10}" if isinstance(version, int) else None,
        missing=_why_fewer(num, len(ours)),
    )


def ask(nvml: Any, name: str, *arguments: Any) -> Any:
    """Return what a function of NVML returns; None if it fails or the binding lacks it."""
    try:
        return getattr(nvml, name)(*arguments)
    except (nvml.NVMLError, AttributeError, TypeError, ValueError, OSError):
        return None


def as_text(value: Any) -> str | None:
    """Return a text; older bindings return bytes."""
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    return value.strip("\0 ") or None if isinstance(value, str) else None


def bus_id_of(value: Any) -> str | None:
    """Return NVML's `00000000:3B:00.0` as the kernel writes it: `0000:3b:00.0`."""
    text = as_text(value)
    domain, _, rest = (text or "").lower().partition(":")
    return f"{domain[-4:]}:{rest}" if rest else None


def device_folder(kernel: KernelFiles, bus_id: str | None) -> Path:
    """Return the folder in which the kernel describes a PCI device."""
    return kernel.sys / "bus" / "pci" / "devices" / (bus_id or "none")


def _why_fewer(num: Any, seen: int) -> str | None:
    if num is None:
        return "no_count"
    return "some_do_not_answer" if seen < min(num, MAX_GPUS) else None


def _gpu(nvml: Any, handle: Any, index: int, kernel: KernelFiles) -> Gpu:
    def get(name: str, *arguments: Any) -> Any:
        return ask(nvml, name, handle, *arguments)

    bus_id = bus_id_of(getattr(get("nvmlDeviceGetPciInfo"), "busId", None))
    memory = get("nvmlDeviceGetMemoryInfo")
    busy = get("nvmlDeviceGetUtilizationRates")
    limit = get("nvmlDeviceGetEnforcedPowerLimit")
    capability = get("nvmlDeviceGetCudaComputeCapability")
    mig = get("nvmlDeviceGetMigMode")
    folder = device_folder(kernel, bus_id)
    return Gpu(
        index=index,
        vendor="nvidia",
        has_driver=True,
        name=as_text(get("nvmlDeviceGetName")),
        uuid=as_text(get("nvmlDeviceGetUUID")),
        memory_bytes=None if memory is None else int(memory.total),
        bus_id=bus_id,
        compute_capability=".".join(map(str, capability)) if capability else None,
        power_limit_w=None if limit is None else limit / 1000,
        pcie_generation=get("nvmlDeviceGetCurrPcieLinkGeneration"),
        max_pcie_generation=get("nvmlDeviceGetMaxPcieLinkGeneration"),
        pcie_width=get("nvmlDeviceGetCurrPcieLinkWidth"),
        max_pcie_width=get("nvmlDeviceGetMaxPcieLinkWidth"),
        numa_node=_node(folder),
        cpus=read_text(folder / "local_cpulist"),
        used_bytes=None if memory is None else int(memory.used),
        busy_fraction=None if busy is None else busy.gpu / 100,
        has_mig=None if not mig else bool(mig[0]),
    )


def _on_bus(kernel: KernelFiles) -> tuple[Gpu, ...]:
    """Return GPUs by PCI class and vendor; a server board's own graphics do not count."""
    folder = kernel.sys / "bus" / "pci" / "devices"
    found: list[Gpu] = []
    for name in names_in(folder):
        here = folder / name
        vendor = _VENDORS.get(read_text(here / "vendor") or "")
        if vendor is not None and (read_text(here / "class") or "").startswith(_CLASSES):
            found.append(
                Gpu(
                    index=len(found),
                    vendor=vendor,
                    has_driver=False,
                    bus_id=name,
                    pcie_width=read_int(here / "current_link_width"),
                    max_pcie_width=read_int(here / "max_link_width"),
                    numa_node=_node(here),
                    cpus=read_text(here / "local_cpulist"),
                )
            )
    return tuple(found[:MAX_GPUS])


def _node(folder: Path) -> int | None:
    number = read_int(folder / "numa_node")
    return None if number is None or number < 0 else number


def _has_driver(kernel: KernelFiles) -> bool:
    return (kernel.proc / "driver" / "nvidia" / "version").exists()
