"""Reads the state in which the processors of this machine are used.

In: the files of the kernel. Out: a `MachineCondition` without GPUs, about which only the driver
knows. A few small files are read, so that a run can keep it before its command starts.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from steptime.core.devices.control_groups import read_cpu_quota
from steptime.core.devices.machine_condition import MachineCondition
from steptime.watch.host.processes import read_file

_PROC, _SYS = Path("/proc"), Path("/sys")


def read_condition(*, proc: Path = _PROC, sys_folder: Path = _SYS) -> MachineCondition:
    """Return the state of the processors; what this system does not say is None."""
    cpus = sys_folder / "devices" / "system" / "cpu"
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    clock = cpus / f"cpu{cores[0] if cores else 0}" / "cpufreq"
    most_khz = _number(clock / "scaling_max_freq")
    return MachineCondition(
        cpus=_listed(cores) if cores else None,
        quota_cores=read_cpu_quota(proc=proc) or 0.0,
        governor=_text(clock / "scaling_governor"),
        max_frequency_hz=None if most_khz is None else most_khz * 1e3,
        is_boosting=_boost(cpus),
    )


def _boost(cpus: Path) -> bool | None:
    off = _text(cpus / "intel_pstate" / "no_turbo")
    if off is not None:
        return off == "0"
    on = _text(cpus / "cpufreq" / "boost")
    return None if on is None else on == "1"


def _text(path: Path) -> str | None:
    return (read_file(str(path)) or b"").decode(errors="replace").strip() or None


def _number(path: Path) -> float | None:
    with suppress(ValueError):
        return float(_text(path) or "")
    return None


def _listed(cores: list[int]) -> str:
    """Return cores as the kernel writes them: `0-3,8`."""
    runs: list[list[int]] = []
    for core in cores:
        if runs and core == runs[-1][1] + 1:
            runs[-1][1] = core
        else:
            runs.append([core, core])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
