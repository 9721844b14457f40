"""How GPUs and RDMA devices reach each other, as `nvidia-smi topo -m` shows it.

In: NVML's handles and the paths of the PCI bus. Out: `Link` values, one for each pair. Where NVML
does not report the path between two GPUs, the kernel's tree shows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from steptime.machine._files import KernelFiles, read_int
from steptime.machine.gpus import Handle, ask, bus_id_of, device_folder
from steptime.machine.values.inventory_values import Gpu, Link, RdmaDevice

# nvmlGpuTopologyLevel_t in nvml.h; two GPUs of one board count as behind one switch.
_LEVELS = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
_MAX_LINKS = 18  # NVML_NVLINK_MAX_LINKS
_SWITCH = 2  # NVML_NVLINK_DEVICE_TYPE_SWITCH
_SWITCH_HOPS = 2  # a port of the switch, and the device behind it


@dataclass(frozen=True, slots=True, kw_only=True)
class _NvLinks:
    """The active NVLinks of one GPU: by the GPU at the other end, and to switches."""

    to_gpus: Mapping[str, int]
    to_switches: int


def read_links(
    kernel: KernelFiles, nvml: Any, handles: tuple[Handle, ...], rdma: tuple[RdmaDevice, ...]
) -> tuple[Link, ...]:
    """Return each pair of GPUs and RDMA devices once; unknown paths are left out."""
    lines = {one.gpu.index: _nvlinks(nvml, one) for one in handles}
    found = []
    for one, other in combinations(handles, 2):
        kind = _nvlink_kind(one.gpu, other.gpu, lines) or _LEVELS.get(
            ask(nvml, "nvmlDeviceGetTopologyCommonAncestor", one.nvml, other.nvml)
        )
        kind = kind or _way(_place(kernel, one.gpu), _place(kernel, other.gpu))
        if kind is not None:
            found.append(Link(first=_name(one.gpu), second=_name(other.gpu), kind=kind))
    ends = [(_name(one.gpu), _place(kernel, one.gpu)) for one in handles]
    nics = [(one.name, kernel.sys / "class" / "infiniband" / one.name / "device") for one in rdma]
    pairs = [(end, nic) for end in ends for nic in nics] + list(combinations(nics, 2))
    for (first, at), (second, there) in pairs:
        kind = _way(at, there)
        if kind is not None:
            found.append(Link(first=first, second=second, kind=kind))
    return tuple(found)


def _name(gpu: Gpu) -> str:
    return f"GPU{gpu.index}"


def _place(kernel: KernelFiles, gpu: Gpu) -> Path:
    return device_folder(kernel, gpu.bus_id)


def _nvlinks(nvml: Any, one: Handle) -> _NvLinks:
    to_gpus: dict[str, int] = {}
    to_switches = 0
    for link in range(_MAX_LINKS):
        if ask(nvml, "nvmlDeviceGetNvLinkState", one.nvml, link) != 1:
            continue
        if ask(nvml, "nvmlDeviceGetNvLinkRemoteDeviceType", one.nvml, link) == _SWITCH:
            to_switches += 1
            continue
        remote = ask(nvml, "nvmlDeviceGetNvLinkRemotePciInfo", one.nvml, link)
        bus_id = bus_id_of(getattr(remote, "busId", None))
        if bus_id is not None:
            to_gpus[bus_id] = to_gpus.get(bus_id, 0) + 1
    return _NvLinks(to_gpus=to_gpus, to_switches=to_switches)


def _nvlink_kind(one: Gpu, other: Gpu, lines: Mapping[int, _NvLinks]) -> str | None:
    """Return `NV` and the number; through switches, each GPU reaches others with all its links."""
    here, there = lines[one.index], lines[other.index]
    num = here.to_gpus.get(other.bus_id or "", 0) or min(here.to_switches, there.to_switches)
    return f"NV{num}" if num else None


def _way(one: Path, other: Path) -> str | None:
    """Return the path between two PCI devices, from their place in the kernel's tree."""
    try:
        first, second = one.resolve(strict=True), other.resolve(strict=True)
    except (OSError, ValueError):
        return None
    ours, theirs = _below_root(first), _below_root(second)
    if not ours or not theirs:
        return None
    shared = sum(1 for _ in _common(ours, theirs))
    if shared > 1:  # a bridge in addition to the root itself
        longest = max(len(ours), len(theirs)) - shared
        return "PIX" if longest <= _SWITCH_HOPS else "PXB"
    if shared == 1:
        return "PHB"
    nodes = read_int(first / "numa_node"), read_int(second / "numa_node")
    return "NODE" if nodes[0] == nodes[1] else "SYS"


def _below_root(path: Path) -> list[str]:
    """Return the path from its host bridge on, such as `pci0000:3a`."""
    parts = path.parts
    roots = [place for place, part in enumerate(parts) if part.startswith("pci0")]
    return list(parts[roots[0] :]) if roots else []


def _common(one: list[str], other: list[str]) -> list[str]:
    found = []
    for first, second in zip(one, other, strict=False):
        if first != second:
            break
        found.append(first)
    return found
