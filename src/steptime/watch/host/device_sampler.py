"""NVIDIA devices while the command runs, according to NVML: lines `d` in `host.jsonl`.

In: NVIDIA's own binding (nvidia-ml-py). Out: a line for each device and sample. It is quite
ordinary that there is no driver or no binding, or that a device does not report something. This
runs in a thread of its own, because a driver that hangs must not keep us from passing on signals
and the end of the command.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from steptime.record import kinds
from steptime.watch.host.host_sampler import append_line

_INTERVAL_S = 1.0
_NUM_LINES = 20_000  # as in `watch.host_sampler`
_COST_FRACTION = 0.002  # of one core
_END_S = 0.2  # how long the end of the command may wait for a sample
_MAX_DEVICES = 16
_DRIVERS = ("/dev/nvidiactl", "/dev/dxg")

# Bits of NVML's clocks event reasons (nvml.h). An idle device, bit 0, is not throttled.
_THROTTLE = {
    0x2: "clock_setting",
    0x4: "power_cap",
    0x8: "hardware",
    0x10: "sync_boost",
    0x20: "thermal",
    0x40: "thermal",
    0x80: "power_brake",
    0x100: "clock_setting",
}
_NOT_SUPPORTED = 3  # NVML_ERROR_NOT_SUPPORTED
_GPM_SM_ACTIVITY, _GPM_MEMORY_ACTIVITY = 2, 10  # NVML_GPM_METRIC_SM_UTIL, _DRAM_BW_UTIL

Line = dict[str, object]


class DeviceReader:
    """Asks each device, but never again for what it does not support.

    Args:
        nvml: the binding, initialized.
        clock_s: monotonic time [s].
        unix_s: time of day [s].
    """

    def __init__(
        self, nvml: Any, *, clock_s: Callable[[], float], unix_s: Callable[[], float]
    ) -> None:
        self._nvml = nvml
        self._unix_s = unix_s
        num = min(_MAX_DEVICES, self._ask("nvmlDeviceGetCount") or 0)
        handles = [self._ask("nvmlDeviceGetHandleByIndex", index) for index in range(num)]
        self._devices = [
            _Device(nvml, handle, index, clock_s)
            for index, handle in enumerate(handles)
            if handle is not None
        ]

    def heads(self) -> list[Line]:
        """Return a line for each device with what does not change."""
        return [device.head() for device in self._devices]

    def sample(self, job: frozenset[int]) -> list[Line]:
        """Return a line for each device, or only for those on which the command was seen.

        Args:
            job: ids of the command's processes.
        """
        used = [device for device in self._devices if device.is_of(job)]
        t_unix_s = round(self._unix_s(), 3)
        return [
            {"k": kinds.DEVICE_SAMPLE, "t_unix_s": t_unix_s, **device.sample()}
            for device in used or self._devices
        ]

    def _ask(self, name: str, *arguments: Any) -> Any:
        return ask(self._nvml, name, *arguments)


def ask(nvml: Any, name: str, *arguments: Any) -> Any:
    """Return what a function of NVML returns; None if it fails or an old binding lacks it."""
    function = getattr(nvml, name, None)
    if function is None:
        return None
    try:
        return function(*arguments)
    except nvml.NVMLError:
        return None


class _Device:
    """One device, and what it reported last."""

    def __init__(self, nvml: Any, handle: Any, index: int, clock_s: Callable[[], float]) -> None:
        self._nvml = nvml
        self._handle = handle
        self._index = index
        self._clock_s = clock_s
        self._silent: set[str] = set()
        self._energy: tuple[float, float] | None = None  # when, and joules
        self._is_of_job = False
        self._uuid = _text(ask(nvml, "nvmlDeviceGetUUID", handle)) or f"GPU {index}"
        self._gpm = _Gpm.start(nvml, handle)

    def head(self) -> Line:
        name = _text(ask(self._nvml, "nvmlDeviceGetName", self._handle))
        memory = ask(self._nvml, "nvmlDeviceGetMemoryInfo", self._handle)
        limit = ask(self._nvml, "nvmlDeviceGetEnforcedPowerLimit", self._handle)
        found = {
            "device": self._uuid,
            "index": self._index,
            "name": name,
            "memory_bytes": None if memory is None else int(memory.total),
            "power_limit_w": None if limit is None else limit / 1000,
        }
        return {"k": kinds.DEVICE_FACTS, **_known(found)}

    def is_of(self, job: frozenset[int]) -> bool:
        """Return whether the command was ever seen on it; in a container ids may be the host's."""
        if not self._is_of_job:
            running = self._ask("nvmlDeviceGetComputeRunningProcesses") or ()
            self._is_of_job = any(process.pid in job for process in running)
        return self._is_of_job

    def sample(self) -> Line:
        busy = self._ask("nvmlDeviceGetUtilizationRates")
        memory = self._ask("nvmlDeviceGetMemoryInfo")
        clock = self._ask("nvmlDeviceGetClockInfo", getattr(self._nvml, "NVML_CLOCK_SM", 1))
        heat = self._ask("nvmlDeviceGetTemperature", getattr(self._nvml, "NVML_TEMPERATURE_GPU", 0))
        activity = self._gpm.sample() if self._gpm is not None else None
        sm, memory_active = activity or (None, None)
        if memory_active is None and busy is not None:
            memory_active = busy.memory / 100
        power_w, energy_j = self._power()
        found = {
            "device": self._uuid,
            "job": self._is_of_job,
            "busy_fraction": None if busy is None else busy.gpu / 100,
            "sm_fraction": sm,
            "memory_active_fraction": memory_active,
            "used_bytes": None if memory is None else int(memory.used),
            "power_w": power_w,
            "energy_j": energy_j,
            "sm_clock_hz": None if clock is None else clock * 1e6,
            "temperature_c": heat,
            "throttle": self._throttle() or None,
        }
        return _known(found)

    def _ask(self, name: str, *arguments: Any) -> Any:
        """Ask, but never again where NVML says that it is not supported."""
        function = None if name in self._silent else getattr(self._nvml, name, None)
        if function is None:
            return None
        try:
            return function(self._handle, *arguments)
        except self._nvml.NVMLError as error:
            if getattr(error, "value", None) == _NOT_SUPPORTED:
                self._silent.add(name)
            return None

    def _power(self) -> tuple[float | None, float | None]:
        """Return the mean power since the last sample if energy is counted, else the power now."""
        millijoules = self._ask("nvmlDeviceGetTotalEnergyConsumption")
        milliwatts = self._ask("nvmlDeviceGetPowerUsage")
        power_w = None if milliwatts is None else milliwatts / 1000
        if millijoules is None:
            return power_w, None
        now_s, energy_j = self._clock_s(), millijoules / 1000
        before, self._energy = self._energy, (now_s, energy_j)
        if before is not None and now_s > before[0] and energy_j > before[1]:
            power_w = round((energy_j - before[1]) / (now_s - before[0]), 2)
        return power_w, energy_j

    def _throttle(self) -> list[str]:
        bits = self._ask("nvmlDeviceGetCurrentClocksEventReasons")
        if bits is None:  # the name before driver 535
            bits = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons")
        return sorted({word for bit, word in _THROTTLE.items() if (bits or 0) & bit})


class _Gpm:
    """Activity counters of a device between two samples, from Hopper on."""

    def __init__(self, nvml: Any, handle: Any, samples: list[Any]) -> None:
        self._nvml = nvml
        self._handle = handle
        self._samples = samples
        self._has_first = False

    @classmethod
    def start(cls, nvml: Any, handle: Any) -> _Gpm | None:
        """Return the counters; None where the device or the binding has none."""
        support = ask(nvml, "nvmlGpmQueryDeviceSupport", handle)
        if not getattr(support, "isSupportedDevice", False):
            return None
        samples = [ask(nvml, "nvmlGpmSampleAlloc") for _ in range(2)]
        return None if None in samples else cls(nvml, handle, samples)

    def sample(self) -> tuple[float, float] | None:
        """Return the share of time that multiprocessors worked, and of the peak bandwidth."""
        self._samples.reverse()  # the newest is the second
        before, now = self._samples
        try:
            self._nvml.nvmlGpmSampleGet(self._handle, now)
            had_first, self._has_first = self._has_first, True
            return self._metrics(before, now) if had_first else None
        except (self._nvml.NVMLError, AttributeError):
            self._has_first = False
            return None

    def _metrics(self, before: Any, now: Any) -> tuple[float, float]:
        asked = self._nvml.c_nvmlGpmMetricsGet_t()
        asked.version = self._nvml.NVML_GPM_METRICS_GET_VERSION
        asked.numMetrics = 2
        asked.sample1, asked.sample2 = before, now
        asked.metrics[0].metricId = _GPM_SM_ACTIVITY
        asked.metrics[1].metricId = _GPM_MEMORY_ACTIVITY
        self._nvml.nvmlGpmMetricsGet(asked)
        sm, memory = (round(asked.metrics[place].value / 100, 4) for place in range(2))
        return sm, memory


def _text(value: Any) -> str | None:
    """Return a text; older bindings return bytes."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value if isinstance(value, str) else None


def _known(found: Mapping[str, object]) -> Line:
    return {name: value for name, value in found.items() if value is not None}


# -- in a thread


class DeviceWatch:
    """Appends lines until `stop`, or one line that says why there will be none.

    Args:
        path: of `host.jsonl`.
        job: returns the ids of the command's processes.
        load: returns the binding, or why there is none, a machine word.
    """

    def __init__(
        self,
        path: Path,
        *,
        job: Callable[[], frozenset[int]],
        load: Callable[[], Any],
    ) -> None:
        self._path = path
        self._job = job
        self._load = load
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="steptime-devices", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop sampling; a sample that hangs is left behind."""
        self._ends.set()
        self._thread.join(_END_S)

    def _run(self) -> None:
        with suppress(OSError, ValueError, LookupError, TypeError, AttributeError):
            nvml = self._load()
            if isinstance(nvml, str):
                append_line(self._path, {"k": kinds.DEVICES_MISSING, "missing": nvml})
                return
            reader = DeviceReader(nvml, clock_s=time.monotonic, unix_s=time.time)
            for line in reader.heads():
                append_line(self._path, line)
            self._sample_until_stopped(reader)

    def _sample_until_stopped(self, reader: DeviceReader) -> None:
        began_s, wait_s = time.monotonic(), 0.0
        while not self._ends.wait(wait_s):
            before_s = time.thread_time()
            for line in reader.sample(self._job()):
                append_line(self._path, line)
            spent_s, age_s = time.thread_time() - before_s, time.monotonic() - began_s
            wait_s = max(_INTERVAL_S, age_s / _NUM_LINES, spent_s / _COST_FRACTION)


def watch_devices(path: Path, *, job: Callable[[], frozenset[int]]) -> DeviceWatch | None:
    """Watch this machine's devices; return None where there is no driver.

    Args:
        path: of `host.jsonl`.
        job: returns the ids of the command's processes.
    """
    if not any(map(os.path.exists, _DRIVERS)):
        return None
    return DeviceWatch(path, job=job, load=load_nvml)


def load_nvml() -> Any:
    """Return the binding, initialized; or why there is none, a machine word."""
    try:
        import pynvml
    except (ImportError, RuntimeError):
        return "no_binding"
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return f"nvml_error_{error.value}"
    return pynvml
