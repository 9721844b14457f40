"""Reads what lies on the PCI paths between GPUs and RDMA devices: IOMMU, and access control (ACS).

In: the kernel's files. Out: a `PciPath`. The part of a bridge's registers that holds access control
is shown to root alone: for others it is unknown.
"""

from __future__ import annotations

from pathlib import Path

from steptime.machine._files import KernelFiles, names_in, read_bytes, read_text
from steptime.machine.gpus import device_folder
from steptime.machine.values.inventory_values import Inventory
from steptime.machine.values.node_facts import PciPath

# PCI Express Base Specification: extended capabilities begin here, and each names the next one.
_EXTENDED, _END = 0x100, 0x1000
_ACS = 0x000D
_CONTROL = 6  # offset of the control register
_REDIRECT = 0x04 | 0x08  # requests (ReqRedir) and completions (CmpltRedir), as lspci names them
_PLAIN_BYTES = 64  # what users other than root are shown
_MAX_CAPABILITIES = 64

_IOMMU = {"identity": "passthrough", "DMA": "translating", "DMA-FQ": "translating"}


def read_pci_path(kernel: KernelFiles, inventory: Inventory) -> PciPath | None:
    """Return what lies on the paths; None where the kernel shows no place of any device."""
    gpus = [device_folder(kernel, gpu.bus_id) for gpu in inventory.gpus]
    nics = [kernel.sys / "class" / "infiniband" / one.name / "device" for one in inventory.rdma]
    places = [place for place in map(_real, (*gpus, *nics)) if place is not None]
    if not places:
        return None
    bridges: dict[str, Path] = {}
    for place in places:
        bridges.update(_bridges_above(place))
    controls = {name: _access_control(bridges[name]) for name in bridges}
    is_told = all(control is not None for control in controls.values())
    return PciPath(
        num_devices=len(places),
        num_bridges=len(bridges),
        redirecting=tuple(name for name in sorted(controls) if (controls[name] or 0) & _REDIRECT)
        if is_told
        else None,
        iommu=_iommu(kernel, [place for place in map(_real, gpus) if place is not None]),
    )


def _real(place: Path) -> Path | None:
    try:
        return place.resolve(strict=True)
    except (OSError, ValueError):
        return None


def _bridges_above(place: Path) -> dict[str, Path]:
    """Return the bridges from a device up to its root complex, by bus id."""
    found: dict[str, Path] = {}
    for folder in place.parents:
        if folder.name.startswith("pci"):
            return found
        found[folder.name] = folder
    return {}


def _access_control(bridge: Path) -> int | None:
    """Return the control register, 0 without the capability; None where it is not shown."""
    data = read_bytes(bridge / "config", max_bytes=_END)
    if data is None or len(data) <= _PLAIN_BYTES:
        return None
    at = _EXTENDED
    for _ in range(_MAX_CAPABILITIES):
        if at < _EXTENDED or at + _CONTROL + 2 > len(data):
            return 0
        head = int.from_bytes(data[at : at + 4], "little")
        if head & 0xFFFF == _ACS:
            return int.from_bytes(data[at + _CONTROL : at + _CONTROL + 2], "little")
        at = head >> 20 & 0xFFC
    return 0


def _iommu(kernel: KernelFiles, gpus: list[Path]) -> str | None:
    """Return how the GPUs' addresses are translated; the worst of them counts."""
    if not gpus:
        return None
    groups = kernel.sys / "class" / "iommu"
    if not groups.is_dir():
        return None
    if not names_in(groups):
        return "off"
    kinds = [_IOMMU.get(read_text(gpu / "iommu_group" / "type") or "") for gpu in gpus]
    if "translating" in kinds:
        return "translating"
    return "passthrough" if kinds and all(kind == "passthrough" for kind in kinds) else None
