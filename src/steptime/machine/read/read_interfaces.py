"""Reads the network interfaces, the kernel's routes, and the hosts that are written down.

In: the kernel's files. Out: `Interface` and `Route` values, and addresses by name.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from contextlib import suppress
from ipaddress import IPv4Address, IPv4Interface
from pathlib import Path
from typing import Any

import psutil

from steptime.machine._files import KernelFiles, names_in, read_lines
from steptime.machine.values.check_facts import Interface, Route

_MAX_LAYERS = 3  # a VLAN over a bond over a device
_ROUTE_UP = 0x1  # RTF_UP (route.h)


def read_interfaces(kernel: KernelFiles) -> tuple[Interface, ...]:
    """Return the interfaces with an address, in the order in which the system lists them."""
    try:
        addresses = psutil.net_if_addrs()
        states = psutil.net_if_stats()
    except (OSError, psutil.Error):
        return ()
    found = []
    for name, own in addresses.items():
        families = {int(address.family) for address in own}
        if not families & {int(socket.AF_INET), int(socket.AF_INET6)}:  # NCCL sees no others
            continue
        state = states.get(name)
        speed = state.speed * 1e6 if state is not None and state.speed > 0 else None
        found.append(
            Interface(
                name=name,
                is_up=state is not None and state.isup,
                is_hardware=is_hardware(kernel.sys / "class" / "net", name),
                speed_bits_per_s=speed,
                networks=tuple(_networks(own)),
            )
        )
    return tuple(found)


def is_hardware(folder: Path, name: str, *, layers: int = _MAX_LAYERS) -> bool:
    """Return whether an interface is a device, or a bond or VLAN over one.

    Args:
        folder: the kernel's folder of interfaces.
        name: the interface.
        layers: how many more may lie below it.
    """
    here = folder / name
    if (here / "device").exists():
        return True
    is_layer = (here / "bonding").exists() or "DEVTYPE=vlan" in read_lines(here / "uevent")
    if not is_layer or layers == 0:
        return False
    below = [entry.removeprefix("lower_") for entry in names_in(here) if entry.startswith("lower_")]
    return any(is_hardware(folder, one, layers=layers - 1) for one in below)


def _networks(addresses: Iterable[Any]) -> list[str]:
    found = []
    for address in addresses:
        if int(address.family) == int(socket.AF_INET) and address.netmask:
            with suppress(ValueError):
                found.append(IPv4Interface(f"{address.address}/{address.netmask}").with_prefixlen)
    return found


def read_routes(kernel: KernelFiles) -> tuple[Route, ...]:
    """Return the routes of the kernel's main table for IPv4."""
    found = []
    for line in read_lines(kernel.proc / "net" / "route")[1:]:
        fields = line.split()
        with suppress(ValueError, IndexError):
            if int(fields[3], 16) & _ROUTE_UP:
                network = f"{_address(fields[1])}/{_address(fields[7])}"
                found.append(
                    Route(interface=fields[0], network=IPv4Interface(network).with_prefixlen)
                )
    return tuple(found)


def _address(word: str) -> IPv4Address:
    """Return an address that the kernel writes in the machine's order of bytes."""
    return IPv4Address(int.from_bytes(bytes.fromhex(word), "little"))


def read_hosts(kernel: KernelFiles) -> Mapping[str, str]:
    """Return the first address of each name in /etc/hosts."""
    found: dict[str, str] = {}
    for line in read_lines(kernel.root / "etc" / "hosts"):
        words = line.partition("#")[0].split()
        for name in words[1:]:
            found.setdefault(name, words[0])
    return found
