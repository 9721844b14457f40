"""What a container, a control group or the shell allows a process of ours.

In: the kernel's files, in both versions of control groups. Out: `ProcessLimits`, and how many cores
can be used.
"""

from __future__ import annotations

import math
import os
import resource
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from steptime.core.devices.control_groups import Group, find_group, read_cpu_quota
from steptime.machine._files import (
    KernelFiles,
    format_cpu_list,
    parse_cpu_list,
    read_int,
    read_text,
)
from steptime.machine.values.inventory_values import ProcessLimits

_NO_LIMIT = 1 << 60  # version 1 writes a number near 2**63 for "no limit"


def read_limits(kernel: KernelFiles, *, environment: Mapping[str, str]) -> ProcessLimits:
    """Return the limits of this process; children inherit them."""
    memory = _group(kernel, "memory", "memory.limit_in_bytes", "memory.max")
    cpu = _group(kernel, "cpu", "cpu.cfs_quota_us", "cpu.max")
    cpus = _group(kernel, "cpuset", "cpuset.cpus", "cpuset.cpus.effective")
    processes = _group(kernel, "pids", "pids.max", "pids.max")
    versions = {2 if group.is_v2 else 1 for group in (memory, cpu) if group is not None}
    return ProcessLimits(
        container=_container(kernel, environment),
        group_version=max(versions, default=None),
        cpu_quota_cores=read_cpu_quota(proc=kernel.proc),
        cpus=_allowed(cpus),
        memory_bytes=_least(memory, "memory.limit_in_bytes", "memory.max"),
        num_processes=_least(processes, "pids.max", "pids.max"),
        shm_bytes=_shm_bytes(kernel.root / "dev" / "shm"),
        locked_bytes=_soft("RLIMIT_MEMLOCK"),
        num_open_files=_soft("RLIMIT_NOFILE"),
        stack_bytes=_soft("RLIMIT_STACK"),
    )


def count_usable(limits: ProcessLimits) -> int:
    """Return how many logical cores our processes can keep busy, at least 1."""
    cores = len(parse_cpu_list(limits.cpus)) or os.cpu_count() or 1
    quota = limits.cpu_quota_cores
    # Threads beyond a quota are stopped for the rest of each period.
    return cores if quota is None else max(1, min(cores, math.ceil(quota)))


def _group(kernel: KernelFiles, controller: str, v1_file: str, v2_file: str) -> Group | None:
    return find_group(controller, v1_file=v1_file, v2_file=v2_file, proc=kernel.proc)


def _allowed(group: Group | None) -> str | None:
    """Return the cores of this process's affinity, which a cpuset limits too, or the cpuset."""
    if hasattr(os, "sched_getaffinity"):
        with suppress(OSError):
            return format_cpu_list(os.sched_getaffinity(0))
    if group is None:
        return None
    file = "cpuset.cpus.effective" if group.is_v2 else "cpuset.cpus"
    return read_text(group.folders[0] / file)


def _least(group: Group | None, v1_file: str, v2_file: str) -> int | None:
    if group is None:
        return None
    file = v2_file if group.is_v2 else v1_file
    numbers = [read_int(folder / file) for folder in group.folders]
    return min((n for n in numbers if n is not None and n < _NO_LIMIT), default=None)


def _shm_bytes(path: Path) -> int | None:
    try:
        status = os.statvfs(path)
    except OSError:
        return None
    return status.f_frsize * status.f_blocks


def _soft(name: str) -> int | None:
    """Return the soft limit; None where there is none."""
    with suppress(AttributeError, OSError, ValueError):
        soft, _ = resource.getrlimit(getattr(resource, name))
        return None if soft in (resource.RLIM_INFINITY, -1) else soft
    return None


def _container(kernel: KernelFiles, environment: Mapping[str, str]) -> str | None:
    """Return what runs the container, by the traces that it leaves; None without traces."""
    if "KUBERNETES_SERVICE_HOST" in environment:
        return "kubernetes"
    if (kernel.root / ".dockerenv").exists():
        return "docker"
    if (kernel.root / "run" / ".containerenv").exists():
        return "podman"
    if "APPTAINER_CONTAINER" in environment or "SINGULARITY_CONTAINER" in environment:
        return "apptainer"
    own = read_text(kernel.proc / "self" / "cgroup") or ""
    for word in ("kubepods", "docker", "libpod", "lxc", "containerd"):
        if word in own:
            return {"kubepods": "kubernetes", "libpod": "podman"}.get(word, word)
    return environment.get("container") or None  # systemd-nspawn, LXC
