"""Makes points over the time of a run, of the machine and its devices as sampled from outside.

In: `host.jsonl`. Out: `HostPoint` and `DevicePoint`, with neighbors merged where there are more
than a page can show. `measure.host_load` has the numbers that need the steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from steptime.core.codec import from_json
from steptime.errors import DamagedRunError
from steptime.measure.values.over_time import DevicePoint, HostPoint
from steptime.record import kinds
from steptime.record.lines import Line, kind_of, read_lines

T = TypeVar("T")


def read_points(
    path: Path, *, max_points: int
) -> tuple[tuple[HostPoint, ...], tuple[DevicePoint, ...]]:
    """Return the points in a `host.jsonl`, each in order of time; none where there is no such file.

    Where the command's processes were seen on some devices, it leaves out the others.

    Args:
        path: the file.
        max_points: most points of the machine, and of each device.

    Raises:
        OSError: the file cannot be read.
    """
    hosts: list[HostPoint] = []
    devices: dict[str, list[DevicePoint]] = {}
    used: set[str] = set()
    for line in read_lines(path):
        if kind_of(line) == kinds.HOST_SAMPLE:
            hosts += _take(HostPoint, line)
        elif kind_of(line) == kinds.DEVICE_SAMPLE:
            for point in _take(DevicePoint, line):
                devices.setdefault(point.device, []).append(point)
                used |= {point.device} if line.get("job") is True else set()
    host = merge_host([point for point in hosts if point.dt_s > 0], max_points)
    shown = [points for device, points in devices.items() if device in used or not used]
    merged = [point for points in shown for point in merge_device(points, max_points)]
    return host, tuple(sorted(merged, key=lambda point: (point.t_unix_s, point.device)))


def _take(cls: type[T], line: Line) -> list[T]:
    try:
        return [from_json(cls, line)]
    except DamagedRunError:
        return []  # `read_records` has counted it


def merge_host(points: Sequence[HostPoint], max_points: int) -> tuple[HostPoint, ...]:
    """Merge neighbors into one point over their whole time: bytes add up, all else is a mean."""
    ordered = sorted(points, key=lambda point: point.t_unix_s)
    return tuple(map(_one_host, _chunks(ordered, max_points)))


def merge_device(points: Sequence[DevicePoint], max_points: int) -> tuple[DevicePoint, ...]:
    """Merge neighbors: values are means, energy is the last, throttle reasons are all of them."""
    ordered = sorted(points, key=lambda point: point.t_unix_s)
    return tuple(map(_one_device, _chunks(ordered, max_points)))


def _chunks(points: Sequence[T], max_points: int) -> list[Sequence[T]]:
    size = max(1, math.ceil(len(points) / max(1, max_points)))
    return [points[start : start + size] for start in range(0, len(points), size)]


def _one_host(points: Sequence[HostPoint]) -> HostPoint:
    if len(points) == 1:
        return points[0]
    weights = [point.dt_s for point in points]

    def mean(read: Callable[[HostPoint], float | None]) -> float | None:
        return _mean([read(point) for point in points], weights)

    def level(read: Callable[[HostPoint], float | None]) -> int | None:
        value = mean(read)
        return None if value is None else round(value)

    def total(read: Callable[[HostPoint], int | None]) -> int | None:
        known = [value for value in map(read, points) if value is not None]
        return sum(known) if known else None

    return HostPoint(
        t_unix_s=points[-1].t_unix_s,
        dt_s=math.fsum(weights),
        busy_cores=mean(lambda p: p.busy_cores) or 0.0,
        job_cores=mean(lambda p: p.job_cores) or 0.0,
        worker_cores=mean(lambda p: p.worker_cores),
        job_resident_bytes=level(lambda p: p.job_resident_bytes),
        worker_resident_bytes=level(lambda p: p.worker_resident_bytes),
        available_bytes=level(lambda p: p.available_bytes),
        cached_bytes=level(lambda p: p.cached_bytes),
        swap_in_bytes=total(lambda p: p.swap_in_bytes),
        disk_read_bytes=total(lambda p: p.disk_read_bytes),
        disk_write_bytes=total(lambda p: p.disk_write_bytes),
        io_wait_cores=mean(lambda p: p.io_wait_cores),
        received_bytes=total(lambda p: p.received_bytes),
        sent_bytes=total(lambda p: p.sent_bytes),
        loopback_bytes=total(lambda p: p.loopback_bytes),
        clock_hz=mean(lambda p: p.clock_hz),
        delayed_fraction=mean(lambda p: p.delayed_fraction),
    )


def _one_device(points: Sequence[DevicePoint]) -> DevicePoint:
    if len(points) == 1:
        return points[0]

    def mean(read: Callable[[DevicePoint], float | None]) -> float | None:
        return _mean([read(point) for point in points], [1.0] * len(points))

    used = mean(lambda p: p.used_bytes)
    energies = [point.energy_j for point in points if point.energy_j is not None]
    return DevicePoint(
        t_unix_s=points[-1].t_unix_s,
        device=points[-1].device,
        busy_fraction=mean(lambda p: p.busy_fraction),
        sm_fraction=mean(lambda p: p.sm_fraction),
        memory_active_fraction=mean(lambda p: p.memory_active_fraction),
        used_bytes=None if used is None else round(used),
        power_w=mean(lambda p: p.power_w),
        energy_j=energies[-1] if energies else None,
        sm_clock_hz=mean(lambda p: p.sm_clock_hz),
        temperature_c=mean(lambda p: p.temperature_c),
        throttle=tuple(sorted({word for point in points for word in point.throttle})),
    )


def _mean(values: Sequence[float | None], weights: Sequence[float]) -> float | None:
    """Return the mean of the values that are known; None without one."""
    pairs = [(v, w) for v, w in zip(values, weights, strict=True) if v is not None]
    total = math.fsum(w for _, w in pairs)
    return math.fsum(v * w for v, w in pairs) / total if total > 0 else None
