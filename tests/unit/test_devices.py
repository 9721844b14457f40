"""NVIDIA devices, with an NVML of our own."""

# ruff: noqa: N802 - the names are those of NVML
from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from steptime.measure.series.host_points import read_points
from steptime.measure.values.over_time import DevicePoint
from steptime.watch.host import device_sampler
from steptime.watch.host.device_sampler import DeviceReader, DeviceWatch, load_nvml, watch_devices


class NVMLError(Exception):
    value = 3


class FakeNvml:
    """One device that supports everything unless a test says otherwise; time passes by hand."""

    NVMLError = NVMLError
    NVML_CLOCK_SM = 1
    NVML_TEMPERATURE_GPU = 0
    NVML_GPM_METRICS_GET_VERSION = 1

    def __init__(self, num_devices: int = 1) -> None:
        self.num_devices = num_devices
        self.unsupported: set[str] = set()
        self.asked: list[str] = []
        self.clock_s = 100.0
        self.millijoules = 1_000_000
        self.reasons = 0
        self.pids: dict[int, int] = {}  # device to a process on it
        self.num_samples = 0

    def answer(self, name: str, value: Any) -> Any:
        self.asked.append(name)
        if name in self.unsupported:
            raise NVMLError
        return value

    def nvmlDeviceGetCount(self) -> Any:
        return self.answer("count", self.num_devices)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any:
        return self.answer("handle", index)

    def nvmlDeviceGetUUID(self, handle: int) -> Any:
        return self.answer("uuid", f"GPU-{handle}")

    def nvmlDeviceGetName(self, handle: int) -> Any:
        return self.answer("name", b"NVIDIA H200")

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: int) -> Any:
        return self.answer("limit", 700_000)

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:
        return self.answer("utilization", SimpleNamespace(gpu=90, memory=40))

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        return self.answer("memory", SimpleNamespace(used=5 << 30, total=140 << 30))

    def nvmlDeviceGetClockInfo(self, handle: int, kind: int) -> Any:
        return self.answer("clock", 1980)

    def nvmlDeviceGetTemperature(self, handle: int, kind: int) -> Any:
        return self.answer("temperature", 61)

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: int) -> Any:
        return self.answer("energy", self.millijoules)

    def nvmlDeviceGetPowerUsage(self, handle: int) -> Any:
        return self.answer("power", 350_500)

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: int) -> Any:
        return self.answer("reasons", self.reasons)

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: int) -> Any:
        return self.answer("old_reasons", self.reasons)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> Any:
        found = [SimpleNamespace(pid=self.pids[handle])] if handle in self.pids else []
        return self.answer("processes", found)

    def nvmlGpmQueryDeviceSupport(self, handle: int) -> Any:
        return self.answer("gpm", SimpleNamespace(isSupportedDevice=1))

    def nvmlGpmSampleAlloc(self) -> Any:
        self.num_samples += 1
        return self.answer("alloc", [self.num_samples])

    def nvmlGpmSampleGet(self, handle: int, sample: list[int]) -> Any:
        sample.append(round(self.clock_s))
        return self.answer("sample", sample)

    def c_nvmlGpmMetricsGet_t(self) -> Any:
        metrics = [SimpleNamespace(metricId=0, value=0.0) for _ in range(2)]
        return SimpleNamespace(metrics=metrics)

    def nvmlGpmMetricsGet(self, asked: Any) -> Any:
        self.answer("metrics", None)
        between = asked.sample2[-1] - asked.sample1[-1]
        for metric in asked.metrics:
            metric.value = float(metric.metricId * between)

    def reader(self) -> DeviceReader:
        return DeviceReader(self, clock_s=lambda: self.clock_s, unix_s=lambda: 1000 + self.clock_s)


def sample_twice(nvml: FakeNvml) -> dict[str, object]:
    """The second line, two seconds after the first."""
    reader = nvml.reader()
    reader.sample(frozenset())
    nvml.clock_s += 2.0
    nvml.millijoules += 800_000
    (line,) = reader.sample(frozenset())
    return line


def test_a_device_tells_what_it_is(tmp_path: Path) -> None:
    assert FakeNvml().reader().heads() == [
        {
            "k": "dh",
            "device": "GPU-0",
            "index": 0,
            "name": "NVIDIA H200",
            "memory_bytes": 140 << 30,
            "power_limit_w": 700.0,
        }
    ]


def test_a_look_is_a_line_and_its_power_the_mean_since_the_last() -> None:
    nvml = FakeNvml()
    nvml.reasons = 0x1 | 0x4 | 0x40
    assert sample_twice(nvml) == {
        "k": "d",
        "t_unix_s": 1102.0,
        "device": "GPU-0",
        "job": False,
        "busy_fraction": 0.9,
        "sm_fraction": 0.04,
        "memory_active_fraction": 0.2,
        "used_bytes": 5 << 30,
        "power_w": 400.0,
        "energy_j": 1800.0,
        "sm_clock_hz": 1.98e9,
        "temperature_c": 61,
        "throttle": ["power_cap", "thermal"],
    }


def test_an_older_device_has_the_shares_that_the_driver_samples() -> None:
    nvml = FakeNvml()
    nvml.unsupported = {"gpm", "energy", "reasons"}
    nvml.reasons = 0x80
    line = sample_twice(nvml)
    assert "sm_fraction" not in line
    assert (line["memory_active_fraction"], line["power_w"]) == (0.4, 350.5)
    assert (line["throttle"], "energy_j" in line) == (["power_brake"], False)


def test_what_a_device_does_not_support_is_left_out_and_not_asked_again() -> None:
    nvml = FakeNvml()
    nvml.unsupported = {"utilization", "memory", "clock", "temperature", "power", "energy",
                        "reasons", "old_reasons", "gpm", "processes", "uuid"}  # fmt: skip
    assert sample_twice(nvml) == {"k": "d", "t_unix_s": 1102.0, "device": "GPU 0", "job": False}
    assert nvml.asked.count("utilization") == 1


def test_a_failure_that_may_pass_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = FakeNvml()
    reader = nvml.reader()
    monkeypatch.setattr(NVMLError, "value", 15)
    nvml.unsupported = {"utilization"}
    assert "busy_fraction" not in reader.sample(frozenset())[0]
    nvml.unsupported = set()
    assert reader.sample(frozenset())[0]["busy_fraction"] == 0.9


def test_a_device_that_fails_in_between_has_no_activity_until_two_samples_are_there() -> None:
    nvml = FakeNvml()
    reader = nvml.reader()
    reader.sample(frozenset())
    nvml.unsupported = {"sample"}
    assert "sm_fraction" not in reader.sample(frozenset())[0]
    nvml.unsupported = set()
    assert "sm_fraction" not in reader.sample(frozenset())[0]
    assert "sm_fraction" in reader.sample(frozenset())[0]


def test_once_the_command_was_seen_on_a_device_the_others_are_left_alone() -> None:
    nvml = FakeNvml(num_devices=3)
    reader = nvml.reader()

    def looked_at() -> list[tuple[object, object]]:
        return [(line["device"], line["job"]) for line in reader.sample(frozenset({7, 8}))]

    assert looked_at() == [("GPU-0", False), ("GPU-1", False), ("GPU-2", False)]
    nvml.pids = {1: 7, 0: 999}
    assert looked_at() == [("GPU-1", True)]
    nvml.pids = {2: 8}
    assert looked_at() == [("GPU-1", True), ("GPU-2", True)]


def test_a_binding_that_lacks_a_function_is_an_older_one() -> None:
    bare = SimpleNamespace(
        NVMLError=NVMLError,
        nvmlDeviceGetCount=lambda: 1,
        nvmlDeviceGetHandleByIndex=lambda index: index,
    )
    reader = DeviceReader(bare, clock_s=lambda: 0.0, unix_s=lambda: 5.0)
    assert reader.sample(frozenset()) == [
        {"k": "d", "t_unix_s": 5.0, "device": "GPU 0", "job": False}
    ]


# -- the thread


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_lines_are_written_until_it_is_stopped(tmp_path: Path) -> None:
    path, nvml = tmp_path / "host.jsonl", FakeNvml()
    nvml.pids = {0: 7}
    watch = DeviceWatch(path, job=lambda: frozenset({7}), load=lambda: nvml)
    watch.stop()
    watch._thread.join()
    kinds = [line["k"] for line in read_lines(path)]
    assert kinds[0] == "dh"
    _, points = read_points(path, max_points=9)
    assert len(points) == len(kinds) - 1
    assert all(isinstance(point, DevicePoint) for point in points)


def test_why_there_are_no_lines_is_a_line(tmp_path: Path) -> None:
    path = tmp_path / "host.jsonl"
    watch = DeviceWatch(path, job=frozenset, load=lambda: "no_binding")
    watch._thread.join()
    assert read_lines(path) == [{"k": "dm", "missing": "no_binding"}]


def test_a_folder_that_was_deleted_ends_the_watch(tmp_path: Path) -> None:
    watch = DeviceWatch(tmp_path / "gone" / "host.jsonl", job=frozenset, load=FakeNvml)
    watch._thread.join()
    watch.stop()


def test_without_a_driver_nothing_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_sampler, "_DRIVERS", (str(tmp_path / "nvidiactl"),))
    assert watch_devices(tmp_path / "host.jsonl", job=frozenset) is None


def test_a_machine_without_the_binding_is_an_ordinary_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert load_nvml() == "no_binding"


def test_a_driver_that_refuses_is_told_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise NVMLError

    monkeypatch.setitem(
        sys.modules, "pynvml", SimpleNamespace(NVMLError=NVMLError, nvmlInit=refuse)
    )
    assert load_nvml() == "nvml_error_3"
