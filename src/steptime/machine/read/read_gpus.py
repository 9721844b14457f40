"""Reads the present state of NVIDIA GPUs from NVML.

In: NVIDIA's own binding, initialized. Out: `GpuState` values; what a device does not report is
None.
"""

from __future__ import annotations

import ctypes
from typing import Any

from steptime.machine.gpus import MAX_GPUS, as_text, ask
from steptime.machine.values.check_facts import GpuState
from steptime.machine.values.node_facts import GpuProcess

_REASONS = {
    0x2: "clock_setting",
    0x4: "power_cap",
    0x8: "hardware",
    0x20: "thermal",
    0x40: "thermal",
    0x80: "power_brake",
    0x100: "clock_setting",
}
"""Bits of NVML's clocks event reasons (nvml.h)."""

# The numbers are from NVML's enumerations.
_SM, _TEMPERATURE, _UNCORRECTED, _SINCE_LOADED, _EVER = 1, 0, 1, 0, 1
_FABRIC = {0: "not_supported", 1: "not_started", 2: "in_progress", 3: "completed"}
_MAX_LINKS = 18  # NVML_NVLINK_MAX_LINKS


def read_gpu_states(nvml: Any) -> tuple[GpuState, ...]:
    """Return the state of each GPU."""
    num = ask(nvml, "nvmlDeviceGetCount") or 0
    found = []
    for index in range(min(num, MAX_GPUS)):
        handle = ask(nvml, "nvmlDeviceGetHandleByIndex", index)
        if handle is not None:
            found.append(_state(nvml, handle, index))
    return tuple(found)


def _state(nvml: Any, handle: Any, index: int) -> GpuState:
    def get(name: str, *arguments: Any) -> Any:
        return ask(nvml, name, handle, *arguments)

    def watts(name: str) -> float | None:
        value = get(name)
        return None if value is None else value / 1000

    bits = get("nvmlDeviceGetCurrentClocksEventReasons")
    if bits is None:  # the name before driver 535
        bits = get("nvmlDeviceGetCurrentClocksThrottleReasons")
    persistence = get("nvmlDeviceGetPersistenceMode")
    busy = get("nvmlDeviceGetUtilizationRates")
    rows = get("nvmlDeviceGetRemappedRows")  # corrected, uncorrected, pending, failed
    bounds = get("nvmlDeviceGetPowerManagementLimitConstraints")  # lowest, highest
    processes = get("nvmlDeviceGetComputeRunningProcesses")
    mig = get("nvmlDeviceGetMigMode")  # current, pending
    links = [get("nvmlDeviceGetNvLinkState", link) for link in range(_MAX_LINKS)]
    told = [link for link in links if link is not None]
    return GpuState(
        index=index,
        persistence=None if persistence is None else bool(persistence),
        power_limit_w=watts("nvmlDeviceGetEnforcedPowerLimit"),
        default_power_limit_w=watts("nvmlDeviceGetPowerManagementDefaultLimit"),
        requested_power_limit_w=watts("nvmlDeviceGetPowerManagementLimit"),
        max_power_limit_w=None if bounds is None else bounds[1] / 1000,
        num_processes=None if processes is None else len(processes),
        clock_mhz=get("nvmlDeviceGetApplicationsClock", _SM),
        default_clock_mhz=get("nvmlDeviceGetDefaultApplicationsClock", _SM),
        held_down=None
        if bits is None
        else tuple(sorted({word for bit, word in _REASONS.items() if bits & bit})),
        busy_fraction=None if busy is None else busy.gpu / 100,
        temperature_c=get("nvmlDeviceGetTemperature", _TEMPERATURE),
        num_uncorrected=get("nvmlDeviceGetTotalEccErrors", _UNCORRECTED, _SINCE_LOADED),
        num_ever=get("nvmlDeviceGetTotalEccErrors", _UNCORRECTED, _EVER),
        rows_pending=None if rows is None else bool(rows[2]),
        rows_failed=None if rows is None else bool(rows[3]),
        mig=None if mig is None else bool(mig[0]),
        mig_pending=None if mig is None else bool(mig[1]),
        processes=_processes(nvml, processes),
        nvlinks_up=sum(map(bool, told)) if told else None,
        nvlinks=len(told) or None,
        fabric=_fabric(nvml, handle),
    )


def _processes(nvml: Any, running: Any) -> tuple[GpuProcess, ...] | None:
    """Return the processes that compute; None where the driver does not list them."""
    if running is None:
        return None
    return tuple(
        GpuProcess(
            pid=int(one.pid),
            used_bytes=getattr(one, "usedGpuMemory", None),
            name=as_text(ask(nvml, "nvmlSystemGetProcessName", one.pid)),
        )
        for one in running
    )


def _fabric(nvml: Any, handle: Any) -> str | None:
    """Return the state of the NVSwitches' fabric, or `failed` where its end was no success."""
    kind = getattr(nvml, "c_nvmlGpuFabricInfo_t", None)
    if kind is None:
        return None
    info = kind()
    if ask(nvml, "nvmlDeviceGetGpuFabricInfo", handle, ctypes.byref(info)) is None:
        return None
    state = _FABRIC.get(int(info.state))
    return "failed" if state == "completed" and int(info.status) else state
