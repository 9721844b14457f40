"""Gathers the facts of a node with their readers, and whose the processes on its GPUs are.

In: the kernel's files, the inventory, and what runs a tool. Out: `NodeFacts`, and why parts of
them are missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from steptime.machine._files import KernelFiles
from steptime.machine.inventory import within
from steptime.machine.read.read_cpu_clock import read_cpu_clock
from steptime.machine.read.read_kernel_log import read_kernel_log
from steptime.machine.read.read_node import (
    has_irqbalance,
    own_user,
    owner_of,
    read_caches,
    read_fabric,
    read_peer_memory,
    read_room,
)
from steptime.machine.read.read_pci import read_pci_path
from steptime.machine.read.read_ports import read_queues, read_rdma_ports
from steptime.machine.read.run_tool import RunTool
from steptime.machine.storage import read_mounts
from steptime.machine.values.check_facts import GpuState
from steptime.machine.values.inventory_values import Inventory
from steptime.machine.values.node_facts import GpuProcess, NodeFacts, Steal

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
    log = None
    if any(gpu.vendor == "nvidia" for gpu in inventory.gpus):
        told = read_kernel_log(kernel, run)
        if isinstance(told, str):
            missing["kernel_log"] = told
        else:
            log = told
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
    )


def with_owners(
    kernel: KernelFiles, states: tuple[GpuState, ...], *, is_container: bool
) -> tuple[GpuState, ...]:
    """Return the states with whose the processes are; a container numbers its own itself."""
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
