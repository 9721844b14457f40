"""Reads kernel facts beyond the inventory: load over a second, swap, limits, listeners.

In: the kernel's files. Out: `System` and `Port` values. What cannot be read is
None; no reader needs more rights than the user has.
"""

from __future__ import annotations

import os
import re
import resource
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from steptime.core.devices.control_groups import find_group, read_quota_periods
from steptime.machine._files import KernelFiles, names_in, read_int, read_kib, read_lines, read_text
from steptime.machine.values.check_facts import Port, Space, System
from steptime.record.numbers_told import whole_number_in

SAMPLE_S = 1.0
"""Long enough for a hundred ticks of the kernel's clock on each core."""

_LISTEN = "0A"  # state of a socket in /proc/net/tcp (tcp_states.h)


def read_system(
    kernel: KernelFiles, *, folders: Mapping[str, Path], sample_s: float = SAMPLE_S
) -> System:
    """Return the state of the system.

    Args:
        kernel: the kernel's files.
        folders: folders whose free space matters, by what lies there.
        sample_s: time over which rates are measured [s].
    """
    before = _counters(kernel)
    time.sleep(sample_s)
    after = _counters(kernel)
    others, swap_in = _rates(before, after)
    total, free = (read_kib(kernel.proc / "meminfo", word) for word in ("SwapTotal", "SwapFree"))
    balancing = read_int(kernel.proc / "sys" / "kernel" / "numa_balancing")
    return System(
        os_id=_os_id(kernel.root / "etc" / "os-release"),
        huge_pages=_chosen(kernel.sys / "kernel" / "mm" / "transparent_hugepage" / "enabled"),
        numa_balancing=None if balancing is None else balancing != 0,
        swap_used_bytes=None if total is None or free is None else total - free,
        swap_in_bytes_per_s=swap_in,
        others_cores=others,
        throttled_fraction=_throttled_fraction(kernel),
        group_used_bytes=_group_used_bytes(kernel),
        locked_hard_bytes=_hard("RLIMIT_MEMLOCK"),
        num_open_files_hard=_hard("RLIMIT_NOFILE"),
        stack_hard_bytes=_hard("RLIMIT_STACK"),
        cpuset=_cpuset(kernel),
        gpu_settings_at_start=_gpu_settings(kernel),
        site_variables=_site_variables(kernel),
        has_nvidia_module=(kernel.proc / "driver" / "nvidia" / "version").exists(),
        has_nvidia_files=any((kernel.root / "dev" / n).exists() for n in ("nvidiactl", "dxg")),
        has_infiniband_files=bool(names_in(kernel.root / "dev" / "infiniband")),
        spaces=read_spaces(folders),
    )


# -- over a second


def _counters(kernel: KernelFiles) -> tuple[float, float | None, float, int | None]:
    """Return the time, busy core-seconds of machine and process, and pages read from swap."""
    busy = None
    words = (read_text(kernel.proc / "stat") or "").split("\n")[0].split()
    with suppress(ValueError, IndexError):
        # user, nice, system, idle, iowait, irq, softirq: all but idle and iowait. What comes next
        # is stolen by the hypervisor, and no process of this machine had it.
        ticks = [int(word) for word in words[1:8]]
        busy = (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")
    own = os.times()
    pages = None
    for line in read_lines(kernel.proc / "vmstat"):
        name, _, value = line.partition(" ")
        if name == "pswpin" and (number := whole_number_in(value.strip())) is not None:
            pages = number
    return time.monotonic(), busy, own.user + own.system, pages


def _rates(
    before: tuple[float, float | None, float, int | None],
    after: tuple[float, float | None, float, int | None],
) -> tuple[float | None, float | None]:
    """Return the cores that others kept busy, and the bytes per second read from swap."""
    passed_s = after[0] - before[0]
    if passed_s <= 0:
        return None, None
    others = swap_in = None
    if before[1] is not None and after[1] is not None:
        others = max(0.0, (after[1] - before[1] - (after[2] - before[2])) / passed_s)
    if before[3] is not None and after[3] is not None:
        swap_in = (after[3] - before[3]) * os.sysconf("SC_PAGE_SIZE") / passed_s
    return others, swap_in


# -- small files


def _os_id(path: Path) -> str | None:
    for line in read_lines(path):
        if line.startswith("ID="):
            return line[3:].strip("\"' ") or None
    return None


def _chosen(path: Path) -> str | None:
    """Return the word in brackets: `always [madvise] never`."""
    for word in (read_text(path) or "").split():
        if word.startswith("[") and word.endswith("]"):
            return word[1:-1]
    return None


def _throttled_fraction(kernel: KernelFiles) -> float | None:
    """Return the share of the quota's periods, since the group began, in which it was stopped."""
    counts = read_quota_periods(proc=kernel.proc)
    return None if counts is None else counts[1] / counts[0]


def _group_used_bytes(kernel: KernelFiles) -> int | None:
    """Return the memory of the group without files that the kernel can drop."""
    group = find_group(
        "memory", v1_file="memory.usage_in_bytes", v2_file="memory.current", proc=kernel.proc
    )
    if group is None:
        return None
    folder = group.folders[0]
    name = "memory.current" if group.is_v2 else "memory.usage_in_bytes"
    used = read_int(folder / name)
    if used is None:
        return None
    for line in read_lines(folder / "memory.stat"):
        word, _, value = line.partition(" ")
        if word in ("inactive_file", "total_inactive_file", "active_file", "total_active_file"):
            with suppress(ValueError):
                used -= int(value)
    return max(0, used)


def _cpuset(kernel: KernelFiles) -> str | None:
    """Return the cores that the group may use, whatever its processes bound themselves to."""
    names = {"v1_file": "cpuset.effective_cpus", "v2_file": "cpuset.cpus.effective"}
    group = find_group("cpuset", **names, proc=kernel.proc)
    if group is None:
        return None
    return read_text(group.folders[0] / names["v2_file" if group.is_v2 else "v1_file"])


_AT_START = (
    "etc/systemd/system/*.service",
    "etc/rc.local",
    "etc/rc.d/rc.local",
    "etc/crontab",
    "etc/cron.d/*",
)
"""Files of a machine's administrators that run commands when it starts, or by the clock."""


_FOR_ALL = (
    "etc/environment",
    "etc/profile",
    "etc/profile.d/*",
    "etc/bash.bashrc",
    "etc/bashrc",
    "etc/security/pam_env.conf",
    "etc/nccl.conf",
)
"""Files of a machine's administrators that set variables for every user."""

_SETS = re.compile(r"^\s*(?:export\s+|setenv\s+|declare -x )?([A-Z_][A-Z0-9_]*)[=\s]", re.MULTILINE)


def _site_variables(kernel: KernelFiles) -> dict[str, str]:
    """Return the file that sets each variable for all users; of several the last."""
    paths = [path for pattern in _FOR_ALL for path in sorted(kernel.root.glob(pattern))]
    return {
        name: f"/{path.relative_to(kernel.root)}"
        for path in paths
        for name in _SETS.findall(read_text(path) or "")
    }


def _gpu_settings(kernel: KernelFiles) -> tuple[str, ...]:
    """Return the files that call nvidia-smi: they set limits and clocks of GPUs."""
    paths = [path for pattern in _AT_START for path in sorted(kernel.root.glob(pattern))]
    return tuple(
        f"/{path.relative_to(kernel.root)}"
        for path in paths
        if "nvidia-smi" in (read_text(path) or "")
    )


def _hard(name: str) -> int | None:
    with suppress(AttributeError, OSError, ValueError):
        _, hard = resource.getrlimit(getattr(resource, name))
        return -1 if hard in (resource.RLIM_INFINITY, -1) else hard
    return None


def read_spaces(folders: Mapping[str, Path]) -> tuple[Space, ...]:
    """Return the free space by folder, with each file system once."""
    found: dict[int, Space] = {}
    for what, folder in folders.items():
        with suppress(OSError, ValueError):
            status, device = os.statvfs(folder), os.stat(folder).st_dev
            space = Space(
                what=what,
                folder=str(folder),
                total_bytes=status.f_frsize * status.f_blocks,
                free_bytes=status.f_frsize * status.f_bavail,
                num_files=status.f_files or None,
                num_free=status.f_favail if status.f_files else None,
            )
            found.setdefault(device, space)
    return tuple(found.values())


# -- network


def read_ports(kernel: KernelFiles) -> tuple[Port, ...] | None:
    """Return the TCP ports with listeners, from the kernel's list; None where there is no list."""
    found: dict[int, bool] = {}
    is_told = False
    for name in ("tcp", "tcp6"):
        lines = read_lines(kernel.proc / "net" / name)
        is_told = is_told or bool(lines)
        for line in lines[1:]:
            fields = line.split()
            with suppress(ValueError, IndexError):
                address, _, port = fields[1].partition(":")
                if fields[3] != _LISTEN:
                    continue
                number = int(port, 16)
                found[number] = found.get(number, True) and _is_local(address)
    if not is_told:
        return None
    return tuple(Port(number=n, is_local=found[n]) for n in sorted(found))


def _is_local(address: str) -> bool:
    """Return whether an address of /proc/net/tcp is this machine's own: 127.0.0.0/8 or ::1."""
    if len(address) == 8:
        return address.endswith("7F")  # the words are little-endian
    # These are ::1, and 127.0.0.0/8 as IPv6 addresses.
    is_mapped = address.startswith("0" * 16 + "FFFF0000") and address.endswith("7F")
    return address == "0" * 24 + "01000000" or is_mapped
