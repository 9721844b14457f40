"""Says what a machine has, on one screen for people.

In: an `Inventory`. Out: blocks. `machine_report` adds what it reaches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from steptime.core.printable import printable
from steptime.core.units import format_bytes, format_count, format_percent, format_rate
from steptime.machine.values.inventory_values import Cache, Inventory, Link, Mount
from steptime.report.blocks.phrasing import joined, labeled
from steptime.report.blocks.values import Block, TableBlock
from steptime.report.words.machine.machine_words import PARTS, describe_reason

_MAX_NAMED = 8
_BUSY_FRACTION = 0.05  # a desktop without a job takes a few percent


def inventory_blocks(found: Inventory) -> list[Block]:
    """Return the paragraphs of the inventory, in the order in which a training meets them."""
    gaps = [f"{PARTS.get(part, part)}: {describe_reason(word)}" for part, word in _gaps(found)]
    return [
        *labeled(
            ("cpu", joined(_cpu(found))),
            ("", joined(_caches(found.cpu.caches))),
            ("memory", joined(_memory(found))),
            ("gpus", joined(_gpus(found)) or "none"),
        ),
        *_matrix(found.links),
        *labeled(
            ("network", joined(_network(found)) or "no interface with hardware behind it"),
            ("disks", joined(_disks(found)) or "the system lists none"),
            ("data", joined(_data(found))),
            ("limits", joined(_limits(found))),
            ("not told", "; ".join(gaps)),
        ),
    ]


def _gaps(found: Inventory) -> list[tuple[str, str]]:
    return [(part, word) for part, word in sorted(found.missing.items()) if part != "gpus"]


# -- processors and memory


def _cpu(found: Inventory) -> list[str]:
    cpu = found.cpu
    parts = [printable(cpu.model or cpu.architecture)]
    if cpu.num_sockets is not None and cpu.num_sockets > 1:
        parts.append(_number(cpu.num_sockets, "socket"))
    if cpu.num_cores is not None and cpu.num_cores != cpu.num_threads:
        parts.append(f"{_number(cpu.num_cores, 'core')}, {cpu.num_threads} threads")
    else:
        parts.append(_number(cpu.num_threads, "core"))
    if cpu.num_usable != cpu.num_threads:
        parts.append(f"{cpu.num_usable} usable here")
    if cpu.is_virtual:
        parts.append("virtual")
    return parts + _instructions(cpu.flags, cpu.architecture)


def _instructions(flags: Sequence[str], architecture: str) -> list[str]:
    """Name the best instructions of each kind, and the missing ones that other machines have."""
    if not flags:
        return []
    has = set(flags)
    amx = [flag.removeprefix("amx_") for flag in flags if flag.startswith("amx_")]
    wide = [flag.removeprefix("avx512_") for flag in flags if flag.startswith("avx512_")]
    parts = []
    if "avx512f" in has:
        parts.append("AVX-512" + (f" ({' '.join(wide)})" if wide else ""))
    elif "avx2" in has:
        parts.append("AVX2")
    if amx:
        types = " ".join(word for word in amx if word != "tile")
        parts.append(f"AMX ({types})" if types else "AMX")
    elif architecture in ("x86_64", "AMD64"):
        parts.append("no AMX")
    arm = [flag for flag in ("sme", "sve2", "sve", "i8mm", "bf16", "asimd") if flag in has]
    return parts + ([" ".join(arm)] if arm else [])


def _caches(caches: Sequence[Cache]) -> list[str]:
    parts = []
    for cache in caches:
        if cache.kind != "instruction":
            count = f"{cache.num} × " if cache.num > 1 else ""
            parts.append(f"L{cache.level} {count}{format_bytes(cache.size_bytes)}")
    return parts


def _memory(found: Inventory) -> list[str]:
    ram = found.ram
    if ram.total_bytes is None:
        return ["not told"]
    parts = [format_bytes(ram.total_bytes)]
    if ram.available_bytes is not None:
        parts.append(f"{format_bytes(ram.available_bytes)} available")
    if ram.swap_bytes:
        parts.append(f"swap {format_bytes(ram.swap_bytes)}")
    if len(found.numa) > 1:
        worst = max((max(node.distances, default=0) for node in found.numa), default=0)
        cores = ", ".join(f"{node.node}: cores {node.cpus or 'none'}" for node in found.numa)
        parts.append(f"{len(found.numa)} NUMA nodes, distances up to {worst} ({cores})")
    elif found.numa:
        parts.append("1 NUMA node")
    return parts


# -- GPUs


def _gpus(found: Inventory) -> list[str]:
    with_driver = [gpu for gpu in found.gpus if gpu.has_driver]
    parts = []
    for (name, size), num in Counter((gpu.name, gpu.memory_bytes) for gpu in with_driver).items():
        count = f"{num} × " if num > 1 else ""
        memory = "" if size is None else f", {format_bytes(size)}"
        parts.append(f"{count}{printable(name or 'without a name')}{memory}")
    # as built: a link that sleeps is narrower for the moment
    seen = Counter((gpu.max_pcie_generation, gpu.max_pcie_width) for gpu in with_driver)
    parts += [f"PCIe {generation} x{width}" for generation, width in seen if generation and width]
    if found.nvidia_driver is not None:
        cuda = f", CUDA {found.cuda_driver}" if found.cuda_driver else ""
        parts.append(f"driver {printable(found.nvidia_driver)}{cuda}")
    parts += [
        f"GPU{gpu.index} is {format_percent(gpu.busy_fraction)} busy"
        for gpu in with_driver
        if gpu.busy_fraction is not None and gpu.busy_fraction > _BUSY_FRACTION
    ]
    silent = Counter(gpu.vendor for gpu in found.gpus if not gpu.has_driver)
    parts += [f"{num} of {vendor} on the PCI bus, not asked" for vendor, num in silent.items()]
    if "gpus" in found.missing:
        parts.append(describe_reason(found.missing["gpus"]))
    return parts


def _matrix(links: Sequence[Link]) -> list[Block]:
    """Show how devices reach each other, in one line where all links are alike."""
    if not links:
        return []
    kinds = {link.kind for link in links}
    names = list(dict.fromkeys(name for link in links for name in (link.first, link.second)))
    if len(kinds) == 1 and len(names) > 2:
        return labeled(("", f"all {len(names)} reach each other by {kinds.pop()}"))
    ways = {(link.first, link.second): link.kind for link in links}
    ways |= {(second, first): kind for (first, second), kind in ways.items()}
    rows = [[one, *("X" if one == o else ways.get((one, o), "-") for o in names)] for one in names]
    return [TableBlock(["", *names], rows, name="How devices reach each other", label="")]


# -- network, disks, limits


def _network(found: Inventory) -> list[str]:
    parts = []
    for nic in found.nics[:_MAX_NAMED]:
        speed = nic.speed_bits_per_s
        told = "speed not told" if speed is None else format_rate(speed, "bits_per_s")
        parts.append(f"{printable(nic.name)} {told if nic.is_up else 'down'}")
    for one in found.rdma[:_MAX_NAMED]:
        speed = one.speed_bits_per_s
        told = "" if speed is None else f" {format_rate(speed, 'bits_per_s')}"
        state = "" if one.is_active else ", not active"
        layer = {"Ethernet": "RoCE"}.get(one.link_layer or "", one.link_layer or "RDMA")
        parts.append(f"{printable(one.name)}{told} ({printable(layer)}{state})")
    more = max(0, len(found.nics) - _MAX_NAMED) + max(0, len(found.rdma) - _MAX_NAMED)
    if found.nics and not found.rdma:
        parts.append("no RDMA")
    return parts + ([f"{more} more"] if more else [])


def _disks(found: Inventory) -> list[str]:
    parts = []
    for disk in found.disks[:_MAX_NAMED]:
        size = "" if disk.size_bytes is None else f" {format_bytes(disk.size_bytes)}"
        turning = {True: "turning", False: ""}.get(disk.is_rotational or False, "")
        about = ", ".join(filter(None, (disk.transport, printable(disk.model or ""), turning)))
        parts.append(f"{printable(disk.name)}{size}" + (f" ({about})" if about else ""))
    more = len(found.disks) - _MAX_NAMED
    return parts + ([f"{more} more"] if more > 0 else [])


def _data(found: Inventory) -> list[str]:
    data = found.data
    parts = [printable(data.folder), _file_system(data.mount)]
    if data.free_bytes is not None and data.total_bytes:
        parts.append(f"{format_bytes(data.free_bytes)} free of {format_bytes(data.total_bytes)}")
    if found.num_mounts > _MAX_NAMED:
        parts.append(f"{found.num_mounts} mounts in all")
    return parts


def _file_system(mount: Mount | None) -> str:
    if mount is None:
        return "file system not told"
    where = f" on {', '.join(mount.disks)}" if mount.disks else ""
    return printable(f"{mount.kind}{where}") + (", over the network" if mount.is_network else "")


def _limits(found: Inventory) -> list[str]:
    limits = found.limits
    parts = [] if limits.container is None else [f"in a container ({printable(limits.container)})"]
    if limits.cpu_quota_cores is not None:
        parts.append(f"quota {format_count(round(limits.cpu_quota_cores, 2))} cores")
    if limits.memory_bytes is not None:
        parts.append(f"memory {format_bytes(limits.memory_bytes)}")
    if limits.num_processes is not None:
        parts.append(f"{format_count(limits.num_processes)} processes")
    if limits.cpu_quota_cores is None and limits.memory_bytes is None:
        parts.append("no quota of cores or memory")
    if limits.shm_bytes is not None:
        parts.append(f"/dev/shm {format_bytes(limits.shm_bytes)}")
    if limits.locked_bytes is not None:
        parts.append(f"locked memory {format_bytes(limits.locked_bytes)}")
    if limits.num_open_files is not None:
        parts.append(f"{format_count(limits.num_open_files)} open files")
    return parts


def _number(count: int, thing: str) -> str:
    return f"{count} {thing}" + ("" if count == 1 else "s")
