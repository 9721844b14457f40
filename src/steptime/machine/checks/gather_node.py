"""Gathers the facts of a node with their readers, and GPUs from `nvidia-smi` where NVML is silent.

In: the kernel's files, the inventory, and what runs a tool. Out: `NodeFacts`, and why parts of
them are missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from steptime.machine._files import KernelFiles, read_int, read_text
from steptime.machine.checks.check_facts import GpuState
from steptime.machine.checks.node_facts import GpuProcess, NodeFacts, Steal
from steptime.machine.checks.read_cpu_clock import read_cpu_clock
from steptime.machine.checks.read_kernel_log import read_kernel_log
from steptime.machine.checks.read_node import (
    has_irqbalance,
    own_user,
    owner_of,
    read_caches,
    read_clock_sync,
    read_fabric,
    read_peer_memory,
    read_room,
)
from steptime.machine.checks.read_pci import read_pci_path
from steptime.machine.checks.read_ports import read_queues, read_rdma_ports
from steptime.machine.checks.read_smi import parse_nvlinks, parse_query, parse_topology
from steptime.machine.checks.run_tool import RunTool
from steptime.machine.gpus import device_folder
from steptime.machine.inventory import within
from steptime.machine.storage import read_mounts
from steptime.machine.values.inventory_values import Gpu, Inventory

_FILE_SYSTEM_WAIT_S = 5.0
"""A home on a server that is gone never answers, not even for where a link leads."""


def read_node_facts(
    kernel: KernelFiles,
    inventory: Inventory,
    *,
    environment: Mapping[str, str],
    run: RunTool,
    steal: Steal | None,
    missing: dict[str, str],
) -> NodeFacts:
    """Return the facts of the node.

    Args:
        kernel: the kernel's files.
        inventory: the machine.
        environment: of this shell.
        run: runs a tool that reads.
        steal: as measured over the sample.
        missing: gets the reason of each part that could not be read.
    """
    user, name = own_user()
    log = clock = None
    if any(gpu.vendor == "nvidia" for gpu in inventory.gpus):
        told = read_kernel_log(kernel, run)
        if isinstance(told, str):
            missing["kernel_log"] = told
        else:
            log = told
    synchronized = read_clock_sync(run)
    if isinstance(synchronized, str):
        missing["clock_sync"] = synchronized
    else:
        clock = synchronized
    return NodeFacts(
        kernel_log=log,
        fabric=read_fabric(kernel, is_container=inventory.limits.container is not None),
        pci=read_pci_path(kernel, inventory),
        cpu_clock=read_cpu_clock(kernel, cpus=inventory.limits.cpus),
        steal=steal,
        rdma_ports=read_rdma_ports(kernel),
        nics=read_queues(kernel, inventory.nics),
        has_irqbalance=None if inventory.limits.container else has_irqbalance(kernel),
        room=read_room(kernel, user=user),
        caches=within(
            _FILE_SYSTEM_WAIT_S,
            # all of them: the inventory keeps the first ones
            lambda: read_caches(environment, read_mounts(kernel), user=name),
        ),
        peer_memory=read_peer_memory(kernel, release=inventory.kernel),
        clock_sync=clock,
    )


# -- GPUs


def with_nvidia_smi(
    kernel: KernelFiles, inventory: Inventory, run: RunTool
) -> tuple[Inventory, tuple[GpuState, ...]]:
    """Return the inventory with the GPUs that `nvidia-smi` reports, and their states.

    It is asked where the driver's library did not answer us, though there is a driver.
    """
    why = inventory.missing.get("gpus")
    if inventory.nvidia_driver is not None or why is None or why == "driver_gave_no_answer":
        return inventory, ()
    told = parse_query(run(("nvidia-smi", "-q")).text)
    if told is None or not told.gpus:
        return inventory, ()
    links = parse_topology(run(("nvidia-smi", "topo", "-m")).text)
    active = parse_nvlinks(run(("nvidia-smi", "nvlink", "-s")).text)
    missing = {part: word for part, word in inventory.missing.items() if part != "gpus"}
    if (told.num_attached or 0) > len(told.gpus):
        missing["gpus"] = "some_do_not_answer"
    others = tuple(gpu for gpu in inventory.gpus if gpu.vendor != "nvidia")
    return (
        replace(
            inventory,
            gpus=(*(_placed(kernel, gpu) for gpu in told.gpus), *others),
            links=(*inventory.links, *links),
            nvidia_driver=told.driver,
            cuda_driver=told.cuda,
            missing=missing,
        ),
        tuple(_linked(state, active) for state in told.states),
    )


def _placed(kernel: KernelFiles, gpu: Gpu) -> Gpu:
    """Return the GPU with what the kernel knows of its place."""
    folder = device_folder(kernel, gpu.bus_id)
    node = read_int(folder / "numa_node")
    return replace(
        gpu,
        numa_node=None if node is None or node < 0 else node,
        cpus=read_text(folder / "local_cpulist"),
    )


def _linked(state: GpuState, active: Mapping[int, tuple[int, int]]) -> GpuState:
    if state.index not in active:
        return state
    up, num = active[state.index]
    return replace(state, nvlinks_up=up, nvlinks=num or None)


def with_owners(
    kernel: KernelFiles, states: tuple[GpuState, ...], *, is_container: bool
) -> tuple[GpuState, ...]:
    """Return the states with whose the processes are; a container numbers its own anew."""
    user, _ = own_user()

    def owned(one: GpuProcess) -> GpuProcess:
        owner = None if is_container else owner_of(kernel, one.pid)
        return replace(one, is_ours=None if owner is None else owner == user)

    return tuple(
        state
        if state.processes is None
        else replace(state, processes=tuple(owned(one) for one in state.processes))
        for state in states
    )
