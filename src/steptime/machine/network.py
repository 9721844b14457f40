"""Network interfaces with hardware behind them, and RDMA devices.

In: the kernel's files. Out: `Nic` and `RdmaDevice` values.
"""

from __future__ import annotations

import re
from pathlib import Path

from steptime.machine._files import KernelFiles, link_name, names_in, read_int, read_text
from steptime.machine.values.inventory_values import Nic, RdmaDevice

_UNKNOWN_SPEEDS = (-1, 0, 0xFFFFFFFF)  # a link that is down, or a driver that does not know
_LINK_BITS = re.compile(r"([\d.]+)\s*Gb/sec")


def read_nics(kernel: KernelFiles) -> tuple[Nic, ...]:
    """Return the interfaces with a device behind them, without bridges, tunnels and pairs."""
    folder = kernel.sys / "class" / "net"
    return tuple(
        _nic(folder / name) for name in names_in(folder) if (folder / name / "device").exists()
    )


def _nic(folder: Path) -> Nic:
    megabits = read_int(folder / "speed")
    if megabits in _UNKNOWN_SPEEDS:
        megabits = None
    return Nic(
        name=folder.name,
        is_up=read_text(folder / "operstate") in ("up", "unknown"),
        speed_bits_per_s=None if megabits is None else megabits * 1e6,
        driver=link_name(folder / "device" / "driver"),
        numa_node=_node(folder / "device" / "numa_node"),
    )


def read_rdma(kernel: KernelFiles) -> tuple[RdmaDevice, ...]:
    """Return InfiniBand and RoCE devices, according to their first port."""
    folder = kernel.sys / "class" / "infiniband"
    return tuple(_rdma(folder / name) for name in names_in(folder))


def _rdma(folder: Path) -> RdmaDevice:
    ports = names_in(folder / "ports")
    port = folder / "ports" / (ports[0] if ports else "1")
    rate = _LINK_BITS.search(read_text(port / "rate") or "")  # `400 Gb/sec (4X NDR)`
    return RdmaDevice(
        name=folder.name,
        is_active="ACTIVE" in (read_text(port / "state") or ""),
        speed_bits_per_s=float(rate.group(1)) * 1e9 if rate else None,
        link_layer=read_text(port / "link_layer"),
        nics=tuple(names_in(folder / "device" / "net")),
        numa_node=_node(folder / "device" / "numa_node"),
    )


def _node(path: Path) -> int | None:
    """Return the NUMA node; the kernel writes -1 for none."""
    number = read_int(path)
    return None if number is None or number < 0 else number
