"""The whole inventory: each part is read by its own module, and gaps are named.

In: where the kernel's files are, NVML's binding or why there is none, the data folder. Out: an
`Inventory`. Nothing is measured and nothing is started.
"""

from __future__ import annotations

import platform
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from steptime.machine._files import KernelFiles
from steptime.machine.gpus import FoundGpus, read_gpus
from steptime.machine.network import read_nics, read_rdma
from steptime.machine.process_limits import count_usable, read_limits
from steptime.machine.processors import read_cpu, read_numa, read_ram
from steptime.machine.storage import MAX_MOUNTS, read_data_folder, read_disks, read_mounts
from steptime.machine.topology import read_links
from steptime.machine.values.inventory_values import Inventory

T = TypeVar("T")

DRIVER_WAIT_S = 10.0
"""A hanging driver never answers; a driver that wakes eight sleeping devices takes a few
seconds."""

HERE = KernelFiles()


def read_inventory(
    data: Path,
    *,
    load_nvml: Callable[[], Any],
    environment: Mapping[str, str],
    kernel: KernelFiles = HERE,
    wait_s: float = DRIVER_WAIT_S,
) -> Inventory:
    """Return what this machine has.

    Args:
        data: the folder that a training reads from.
        load_nvml: returns NVIDIA's binding, initialized, or why there is none, a machine word.
        environment: of this process; some containers are recognized by it.
        kernel: where the kernel's files are.
        wait_s: how long to wait for the driver.
    """
    limits = read_limits(kernel, environment=environment)
    cpu = read_cpu(kernel, num_usable=count_usable(limits))
    rdma = read_rdma(kernel)
    mounts = read_mounts(kernel)

    def read() -> Inventory:
        nvml = load_nvml()
        found = read_gpus(kernel, nvml)
        links = read_links(kernel, nvml, found.handles, rdma)
        return _with_gpus(whole, found, links=links)

    whole = Inventory(
        cpu=cpu,
        ram=read_ram(kernel),
        limits=limits,
        data=read_data_folder(data, mounts),
        numa=read_numa(kernel),
        nics=read_nics(kernel),
        rdma=rdma,
        disks=read_disks(kernel),
        mounts=mounts[:MAX_MOUNTS],
        num_mounts=len(mounts),
        kernel=platform.release() or None,
    )
    whole = replace(whole, missing=_gaps(whole))
    done = within(wait_s, read)
    if done is not None:
        return done
    return _with_gpus(whole, read_gpus(kernel, "driver_gave_no_answer"), links=())


def _with_gpus(whole: Inventory, found: FoundGpus, *, links: tuple[Any, ...]) -> Inventory:
    missing = dict(whole.missing)
    if found.missing is not None:
        missing["gpus"] = found.missing
    return replace(
        whole,
        gpus=found.gpus,
        links=links,
        nvidia_driver=found.driver,
        cuda_driver=found.cuda,
        missing=missing,
    )


def _gaps(whole: Inventory) -> dict[str, str]:
    """Return the parts that every machine has but this one did not report."""
    told = {
        "cpu_model": whole.cpu.model,
        "caches": whole.cpu.caches,
        "flags": whole.cpu.flags,
        "memory": whole.ram.total_bytes,
        "numa": whole.numa,
        "network": whole.nics or whole.rdma,
        "disks": whole.disks,
        "mounts": whole.mounts,
    }
    return {part: "not_told" for part, value in told.items() if not value}


def within(wait_s: float, read: Callable[[], T]) -> T | None:
    """Return what it returns; None if it fails or is too late, and its thread is left behind."""
    found: list[T] = []

    def run() -> None:
        with suppress(OSError, ValueError, LookupError, TypeError, AttributeError):
            found.append(read())

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(wait_s)
    return found[0] if found else None
