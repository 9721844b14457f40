"""The processors, their caches, the memory and its NUMA nodes.

In: the kernel's files, or psutil where there are none. Out: `Cpu`, `Ram` and `NumaNode` values.
"""

from __future__ import annotations

import os
import platform
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil

from steptime.machine._files import (
    KernelFiles,
    names_in,
    parse_cpu_list,
    read_int,
    read_kib,
    read_lines,
    read_text,
)
from steptime.machine.values.inventory_values import Cache, Cpu, NumaNode, Ram
from steptime.record.numbers_told import whole_number_in

# What the kernels of training libraries need; x86 in the order of its history, then ARM.
_FLAGS = (
    *("fma", "f16c", "avx2", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16"),
    *("avx_vnni", "amx_tile", "amx_int8", "amx_bf16", "amx_fp16"),
    *("asimd", "asimddp", "fphp", "sve", "sve2", "i8mm", "bf16", "sme"),
)
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def read_cpu(kernel: KernelFiles, *, num_usable: int) -> Cpu:
    """Return the processors; `num_usable` is how many logical cores our process may use."""
    info = _cpuinfo(kernel)
    cores = list(_topology(kernel, info))
    flags = set((info[0].get("flags") or info[0].get("Features") or "").split()) if info else set()
    name = info[0].get("model name") or info[0].get("Model") if info else None
    return Cpu(
        model=" ".join(name.split()) if name else None,
        architecture=platform.machine() or "unknown",
        num_threads=len(cores) or len(info) or os.cpu_count() or num_usable,
        num_usable=num_usable,
        num_cores=len({core for _, core in cores}) or psutil.cpu_count(logical=False),
        num_sockets=len({package for package, _ in cores if package is not None}) or None,
        is_virtual=("hypervisor" in flags) if "fpu" in flags else None,  # ARM has no such flag
        flags=tuple(flag for flag in _FLAGS if flag in flags),
        caches=_caches(kernel.sys / "devices" / "system" / "cpu"),
    )


def _cpuinfo(kernel: KernelFiles) -> list[dict[str, str]]:
    """Return the blocks of /proc/cpuinfo, one for each logical core."""
    blocks: list[dict[str, str]] = []
    for line in read_lines(kernel.proc / "cpuinfo"):
        name, colon, value = (part.strip() for part in line.partition(":"))
        if name == "processor":
            blocks.append({})
        if blocks and colon:
            blocks[-1][name] = value
    return blocks


def _topology(
    kernel: KernelFiles, info: list[dict[str, str]]
) -> Iterator[tuple[str | None, tuple[str | None, str]]]:
    """Yield package and core of each logical core that is online."""
    folder = kernel.sys / "devices" / "system" / "cpu"
    online = parse_cpu_list(read_text(folder / "online"))
    for number in sorted(online):
        here = folder / f"cpu{number}" / "topology"
        package = read_text(here / "physical_package_id")
        siblings = read_text(here / "thread_siblings_list") or str(number)
        yield package, (None, siblings)
    if not online:
        for number, block in enumerate(info):
            package = block.get("physical id")
            yield package, (package, block.get("core id", str(number)))


def _caches(folder: Path) -> tuple[Cache, ...]:
    """Return the caches, each counted once however many cores share it."""
    seen = set()
    for name in names_in(folder):
        if not name.removeprefix("cpu").isdigit():
            continue
        for index in names_in(folder / name / "cache"):
            here = folder / name / "cache" / index
            level, size = read_int(here / "level"), _size(read_text(here / "size"))
            if level is not None and size is not None:
                kind = (read_text(here / "type") or "unified").lower()
                seen.add((level, kind, size, read_text(here / "shared_cpu_list") or name))
    counted = Counter(row[:3] for row in seen)
    return tuple(
        Cache(level=level, kind=kind, size_bytes=size, num=num)
        for (level, kind, size), num in sorted(counted.items())
    )


def _size(text: str | None) -> int | None:
    """Return the bytes of a size such as `32K`."""
    number = whole_number_in(text[:-1]) if text else None
    if text and number is not None and text[-1] in _UNITS:
        return number * _UNITS[text[-1]]
    return whole_number_in(text)


def read_ram(kernel: KernelFiles) -> Ram:
    """Return the memory of the machine."""
    path = kernel.proc / "meminfo"
    if read_text(path) is None:
        memory = psutil.virtual_memory()
        return Ram(total_bytes=memory.total, available_bytes=memory.available)
    return Ram(
        total_bytes=read_kib(path, "MemTotal"),
        available_bytes=read_kib(path, "MemAvailable"),
        swap_bytes=read_kib(path, "SwapTotal"),
    )


def read_numa(kernel: KernelFiles) -> tuple[NumaNode, ...]:
    """Return the NUMA nodes; none where the kernel reports none."""
    folder = kernel.sys / "devices" / "system" / "node"
    found = []
    for name in names_in(folder):
        number = name.removeprefix("node")
        if not number.isdigit() or number == name:
            continue
        here = folder / name
        distances = (read_text(here / "distance") or "").split()
        found.append(
            NumaNode(
                node=int(number),
                cpus=read_text(here / "cpulist") or "",
                memory_bytes=read_kib(here / "meminfo", "MemTotal"),
                distances=tuple(int(word) for word in distances if word.isdigit()),
            )
        )
    return tuple(found)
