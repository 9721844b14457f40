"""Gathers all facts with the readers; a part that fails is None, with the reason beside it.

In: the inventory, the user's Python, the last run. Out: `CheckFacts`.
"""

from __future__ import annotations

import glob
import os
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steptime.machine._files import KernelFiles
from steptime.machine.checks.gather_node import read_node_facts, with_owners
from steptime.machine.inventory import DRIVER_WAIT_S, HERE, within
from steptime.machine.read.nccl_log import MAX_BYTES, parse_nccl_log
from steptime.machine.read.read_cpu_clock import read_ticks, steal_between
from steptime.machine.read.read_gpus import read_gpu_states
from steptime.machine.read.read_interfaces import read_hosts, read_interfaces, read_routes
from steptime.machine.read.read_site import read_site
from steptime.machine.read.read_software import ask_software
from steptime.machine.read.read_sshd import read_sshd
from steptime.machine.read.read_system import read_ports, read_system
from steptime.machine.read.run_tool import RunTool, run_tool
from steptime.machine.values.check_facts import CheckFacts, GpuState, LastRun, Software
from steptime.machine.values.check_values import NcclChoice
from steptime.machine.values.inventory_values import Inventory
from steptime.record.regular_file import open_regular


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Says what to check.

    Attributes:
        python: the interpreter that trains; None where none was found.
        environment: variables of this shell.
        folders: folders whose free space matters, by what lies there.
        nccl_log: the log that the user names; None to search where NCCL should write it.
        run: the last run, or why there is none.
    """

    python: str | None
    environment: Mapping[str, str]
    folders: Mapping[str, Path]
    nccl_log: Path | None
    run: LastRun | str


def gather(
    inventory: Inventory,
    request: Request,
    *,
    load_nvml: Callable[[], Any],
    kernel: KernelFiles = HERE,
    run: RunTool = run_tool,
) -> CheckFacts:
    """Read all facts; this changes nothing and uses no network."""
    missing: dict[str, str] = {}
    # This comes first, while no process of ours is busy.
    ticks = read_ticks(kernel)
    system = read_system(kernel, folders=request.folders)
    steal = steal_between(ticks, read_ticks(kernel))
    states = _gpu_states(inventory, load_nvml)
    software = _software(request, missing)
    sshd = read_sshd(kernel)
    if isinstance(sshd, str):
        missing["sshd"] = sshd
    log = read_nccl_log(request.nccl_log, request.environment)
    if isinstance(log, str):
        missing["nccl_log"] = log
    if isinstance(request.run, str):
        missing["run"] = request.run
    return CheckFacts(
        inventory=inventory,
        environment=request.environment,
        system=system,
        site=read_site(kernel, environment=request.environment),
        software=software,
        gpu_states=with_owners(kernel, states, is_container=inventory.limits.container is not None),
        interfaces=read_interfaces(kernel),
        routes=read_routes(kernel),
        hosts=read_hosts(kernel),
        ports=read_ports(kernel),
        sshd=None if isinstance(sshd, str) else sshd,
        nccl_log=None if isinstance(log, str) else log,
        run=None if isinstance(request.run, str) else request.run,
        node=read_node_facts(
            kernel,
            inventory,
            environment=request.environment,
            run=run,
            steal=steal,
            missing=missing,
        ),
        missing=missing,
    )


def _software(request: Request, missing: dict[str, str]) -> Software | None:
    if request.python is None:
        missing["software"] = "no_python"
        return None
    found = ask_software(request.python, environment=request.environment)
    if isinstance(found, Software):
        return found
    missing["software"], missing["python"] = found[0], request.python
    if found[1]:
        missing["software_detail"] = found[1]
    return None


def _gpu_states(inventory: Inventory, load_nvml: Callable[[], Any]) -> tuple[GpuState, ...]:
    if inventory.nvidia_driver is None:
        return ()

    def read() -> tuple[GpuState, ...]:
        nvml = load_nvml()
        return () if isinstance(nvml, str) else read_gpu_states(nvml)

    return within(DRIVER_WAIT_S, read) or ()


def read_nccl_log(named: Path | None, environment: Mapping[str, str]) -> NcclChoice | str:
    """Return the log that the user names, else NCCL's newest one; or why there is none."""
    path = named or _told_log(environment)
    if path is None:
        return "no_nccl_log"
    try:
        with open_regular(path, max_bytes=sys.maxsize) as file:
            text = file.read(MAX_BYTES).decode(errors="replace")
    except OSError:
        return "log_cannot_be_read"
    return parse_nccl_log(text, path=str(path)) or "log_is_not_of_nccl"


def _told_log(environment: Mapping[str, str]) -> Path | None:
    """Return the newest file of NCCL_DEBUG_FILE, in which %h is the host and %p the process."""
    pattern = environment.get("NCCL_DEBUG_FILE")
    if not pattern:
        return None
    parts = re.split(r"%[hp]", pattern)
    found = []
    for name in glob.glob("*".join(glob.escape(part) for part in parts)):
        with suppress(OSError):
            found.append((os.stat(name).st_mtime, name))
    return Path(max(found)[1]) if found else None
