"""Reads the lines of `host.jsonl`: the machine's load, and what else was seen from outside.

In: a path. Out: frozen values. `measure.series.host_points` makes points over time of them, and
`measure.host_load` makes means over the steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from steptime.measure.fold.jsonl import take_all, take_head
from steptime.measure.wall.device_energy import EnergyMeter
from steptime.record import kinds
from steptime.record.lines import Torn, kind_of, read_lines


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSample:
    """Load of the machine in cores, over the `dt_s` before `t_unix_s`, and its memory.

    `oom_kills` counts from the run's start; `swap_in_bytes` is of the `dt_s` alone.
    `delayed_fraction` is the part of it for which a thread of the command waited for a core,
    `stopped_fraction` the share of the quota's periods in which the quota stopped the command.
    """

    t_unix_s: float
    dt_s: float
    busy_cores: float
    job_cores: float
    swap_in_bytes: int | None = None
    available_bytes: int | None = None
    oom_kills: int | None = None
    worker_resident_bytes: int | None = None
    delayed_fraction: float | None = None
    stopped_fraction: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestlessPython:
    """A Python process of the command in which no guest was seen."""

    pid: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicesMissing:
    """Why there are no lines of devices although there is a driver, as a machine word."""

    missing: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedFile:
    """A file of the record that no longer held what Steptime had read of it; Steptime appends."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLines:
    """What is in the file, each kind in its order; its head has the cores.

    `energy_j` is what the devices drew in all, `throttled_fraction` the part of the time in which
    heat or the power supply held the clock of one down.
    """

    num_cores: int | None = None
    quota_cores: float | None = None
    samples: tuple[HostSample, ...] = ()
    guestless: tuple[GuestlessPython, ...] = ()
    changed: tuple[ChangedFile, ...] = ()
    devices_missing: str | None = None
    energy_j: float | None = None
    throttled_fraction: float | None = None


def read_host(path: Path, torn: Torn) -> HostLines:
    """Return the lines of a `host.jsonl`, which are empty if there is no such file.

    Raises:
        OSError: the file cannot be read.
        DamagedRunError: the file is of another schema.
    """
    lines = read_lines(path, torn)
    head = take_head(HostLines, lines, path, torn)
    if head is None:
        return HostLines()
    found: dict[str, list[Any]] = {kind: [] for kind in _CLASSES}
    meter = EnergyMeter()
    for line in lines:  # one after the other: as plain data they take far more memory
        if kind_of(line) == kinds.DEVICE_SAMPLE:
            meter.add(line)
        if (cls := _CLASSES.get(kind_of(line))) is not None:
            found[kind_of(line)] += take_all(cls, (line,), (kind_of(line),), torn)
    missing = found[kinds.DEVICES_MISSING]
    return replace(
        head,
        samples=tuple(found[kinds.HOST_SAMPLE]),
        guestless=tuple(found[kinds.GUESTLESS]),
        changed=tuple(found[kinds.CHANGED]),
        devices_missing=missing[0].missing if missing else None,
        energy_j=meter.total_j(),
        throttled_fraction=meter.throttled_fraction(),
    )


_CLASSES: Mapping[str, type] = {
    kinds.DEVICES_MISSING: DevicesMissing,
    kinds.HOST_SAMPLE: HostSample,
    kinds.GUESTLESS: GuestlessPython,
    kinds.CHANGED: ChangedFile,
}
