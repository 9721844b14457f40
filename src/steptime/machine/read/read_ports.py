"""Reads ports of RDMA devices, and the packet sizes and interrupts of network interfaces.

In: the kernel's files. Out: `RdmaPort` and `NicQueues` values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from steptime.machine._files import (
    KernelFiles,
    link_name,
    names_in,
    parse_cpu_list,
    read_int,
    read_lines,
    read_text,
)
from steptime.machine.values.inventory_values import Nic
from steptime.machine.values.node_facts import NicQueues, RdmaPort
from steptime.record.numbers_told import whole_number_in

_RATE = re.compile(r"([\d.]+)\s*Gb/sec(?:\s*\((\d+)X(?:\s+(\w+))?\))?")
_ROW = re.compile(r"\s*(\d+):\s")
_MAX_PORTS = 64


def read_rdma_ports(kernel: KernelFiles) -> tuple[RdmaPort, ...] | None:
    """Return the ports of all RDMA devices; None where the kernel has no list of devices."""
    folder = kernel.sys / "class" / "infiniband"
    if not folder.is_dir():
        return () if (kernel.sys / "class").is_dir() else None
    found = []
    for name in names_in(folder):
        numbers = map(whole_number_in, names_in(folder / name / "ports"))
        found += [_port(folder / name, number) for number in numbers if number is not None]
    return tuple(found[:_MAX_PORTS])


def _port(device: Path, number: int) -> RdmaPort:
    folder = device / "ports" / str(number)
    rate = _RATE.search(read_text(folder / "rate") or "")  # `100 Gb/sec (1X NDR)`
    return RdmaPort(
        device=device.name,
        port=number,
        kind=read_text(device / "hca_type"),
        link_layer=read_text(folder / "link_layer"),
        state=_word(folder / "state"),
        physical=_word(folder / "phys_state"),
        rate_bits_per_s=float(rate.group(1)) * 1e9 if rate else None,
        width=int(rate.group(2)) if rate and rate.group(2) else None,
        speed=rate.group(3) if rate else None,
    )


def _word(path: Path) -> str | None:
    """Return the word behind the number: `4: ACTIVE`."""
    return (read_text(path) or "").rpartition(":")[2].strip() or None


def read_queues(kernel: KernelFiles, nics: tuple[Nic, ...]) -> tuple[NicQueues, ...]:
    """Return packet size and interrupts of the interfaces that are up."""
    lines = _interrupt_lines(kernel)
    found = []
    for nic in nics:
        if not nic.is_up:
            continue
        folder = kernel.sys / "class" / "net" / nic.name
        found.append(
            NicQueues(
                name=nic.name,
                speed_bits_per_s=nic.speed_bits_per_s,
                mtu_bytes=read_int(folder / "mtu"),
                interrupts=_interrupts(kernel, folder, nic.name, lines),
                near=tuple(sorted(parse_cpu_list(read_text(folder / "device" / "local_cpulist")))),
            )
        )
    return tuple(found)


def _interrupt_lines(kernel: KernelFiles) -> Mapping[int, str]:
    """Return what stands behind the counts of each interrupt, by its number."""
    found = {}
    for line in read_lines(kernel.proc / "interrupts"):
        row = _ROW.match(line)
        if row is not None:
            found[int(row.group(1))] = line
    return found


def _interrupts(
    kernel: KernelFiles, folder: Path, name: str, lines: Mapping[int, str]
) -> tuple[tuple[int, ...], ...] | None:
    """Return the cores that serve each interrupt of the interface that was ever raised."""
    if not lines:
        return None
    bus_id = link_name(folder / "device")
    own = {int(text) for text in names_in(folder / "device" / "msi_irqs") if text.isdecimal()}
    word = re.compile(rf"(?<![\w.-]){re.escape(name)}(?![\w.])")
    found = []
    for number, line in lines.items():
        is_own = number in own or (bus_id is not None and f"pci:{bus_id}" in line)
        if not is_own and not word.search(line):
            continue
        if not any(count.isdecimal() and int(count) for count in line.split()[1:]):
            continue  # a queue that is not used
        cores = _cores(kernel.proc / "irq" / str(number))
        if cores:
            found.append(cores)
    return tuple(found) or None


def _cores(folder: Path) -> tuple[int, ...]:
    """Return where the interrupt goes; else where it may go."""
    for name in ("effective_affinity_list", "smp_affinity_list"):
        cores = parse_cpu_list(read_text(folder / name))
        if cores:
            return tuple(sorted(cores))
    return ()
