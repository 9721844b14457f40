"""Gives the exact command for hardware counters at the profiled steps; it is printed, never run.

In: a Measurement with a profile. Out: a command line for Nsight Compute or for perf, or the reason
why there is none. The caller finds out whether a tool is installed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from steptime.measure.values.measurement import Measurement
from steptime.measure.values.model.profiled import OperatorTime, RankProfile, function_of

NCU, PERF = "ncu", "perf"

PACKAGES: Mapping[str, str] = {
    "nsys": (
        "Install Nsight Systems: the package `nsight-systems-cli` of NVIDIA's repository, or the "
        "CUDA toolkit's `cuda-nsight-systems-*`."
    ),
    NCU: "Install Nsight Compute: `cuda-nsight-compute-*` of NVIDIA's repository or CUDA toolkit.",
    PERF: ("Install it: `linux-tools-generic` (Ubuntu), `linux-perf` (Debian) or `perf` (Fedora)."),
}
"""The package that provides a missing tool."""

MIN_STAT_S = 1.0
"""Counters of a few milliseconds say little, and the steps do not begin at the same time twice."""

MAX_FUNCTION = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterCommand:
    """A command line for counters, and what they cover; `missing` says why there is none."""

    tool: str
    about: str = ""
    argv: tuple[str, ...] = ()
    missing: str | None = None


def kernel_counters(m: Measurement, wanted: str) -> CounterCommand:
    """Return the Nsight Compute command for one launch of a kernel in the first profiled step.

    `wanted` is part of its name; if it is empty, the busiest kernel that computes is taken.
    """
    rank = _profiled(m)
    if rank is None:
        return CounterCommand(tool=NCU, missing="there is no profile to take counts from")
    kernels = [kernel for device in rank.devices for kernel in device.kernels]
    if not kernels:
        return CounterCommand(tool=NCU, missing="no kernel ran on a device")
    kernel = _choose(kernels, wanted)
    if kernel is None:
        known = ", ".join(sorted({function_of(one.name) for one in kernels[:5]}))
        missing = f"no kernel with `{wanted}` in its name is among the busiest ({known})"
        return CounterCommand(tool=NCU, missing=missing)
    function = function_of(kernel.name)
    per_step = (kernel.num_alike or kernel.num) / max(1, rank.num_steps)
    skipped = round(per_step * (rank.first_step or 0))
    return CounterCommand(
        tool=NCU,
        about=(
            f"one launch of {function}, about {per_step:,.0f} per step, in step "
            f"{rank.first_step or 0}; the launch is repeated for each group of counters"
        ),
        argv=(
            *(NCU, "--target-processes", "all", "--kernel-name-base", "function"),
            *("--kernel-name", function, "--launch-skip", str(skipped), "--launch-count", "1"),
            *("--set", "full", "--export", f"ncu-{function[:MAX_FUNCTION]}", *m.command),
        ),
    )


def processor_counters(m: Measurement) -> CounterCommand:
    """Return the perf command for the CPU from the first profiled step on."""
    rank = _profiled(m)
    if rank is None or rank.start_s is None:
        return CounterCommand(tool=PERF, missing="there is no profile to take times from")
    step = m.steady.step_time_s.estimate if m.steady and m.steady.step_time_s else 0.0
    seconds = max(MIN_STAT_S, rank.num_steps * step)
    delay_ms, length_ms = math.ceil(rank.start_s * 1e3), math.ceil(seconds * 1e3)
    return CounterCommand(
        tool=PERF,
        about=(
            f"{seconds:,.1f} s from about step {rank.first_step or 0} on; perf then ends the "
            f"command. Of a run that goes on: perf stat -d -p PID -- sleep {math.ceil(seconds)}"
        ),
        argv=(PERF, "stat", "-d", "-D", str(delay_ms), "--timeout", str(length_ms), *m.command),
    )


def _profiled(m: Measurement) -> RankProfile | None:
    ranks = m.profile.ranks if m.profile is not None else ()
    return next((rank for rank in ranks if rank.missing is None and rank.host is not None), None)


def _choose(kernels: list[OperatorTime], wanted: str) -> OperatorTime | None:
    ordered = sorted(kernels, key=lambda one: -one.self_s)
    if wanted:
        return next((one for one in ordered if wanted in one.name), None)
    idle = ("communication", "copy")
    return next((one for one in ordered if one.kind not in idle), None)
