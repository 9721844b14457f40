"""The load of the machine and what else was seen from outside: the lines of `host.jsonl`.

In: a path. Out: frozen values. Points over time are left to `measure.points`, means over the steps
to `measure.load`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from steptime.measure.jsonl import take_all, take_head
from steptime.record import kinds
from steptime.record.lines import Torn, read_lines


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSample:
    """Load of the machine over the `dt_s` before `t_unix_s`, in cores, and its memory.

    `oom_kills` counts from the run's start, `swap_in_bytes` over the `dt_s` alone.
    """

    t_unix_s: float
    dt_s: float
    busy_cores: float
    job_cores: float
    swap_in_bytes: int | None = None
    available_bytes: int | None = None
    oom_kills: int | None = None
    worker_resident_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestlessPython:
    """A Python process of the command in which no guest was seen."""

    pid: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicesMissing:
    """Why nothing was written of devices although there is a driver, a machine word."""

    missing: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _HostHead:
    num_cores: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLines:
    """What is in the file, each in its order."""

    num_cores: int | None = None
    samples: tuple[HostSample, ...] = ()
    guestless: tuple[GuestlessPython, ...] = ()
    devices_missing: str | None = None


def read_host(path: Path, torn: Torn) -> HostLines:
    """The lines of a `host.jsonl`; nothing where there is none.

    Raises:
        OSError: it cannot be read.
        DamagedRunError: it is of another schema.
    """
    lines = read_lines(path, torn)
    head = take_head(_HostHead, lines, path, torn)
    if head is None:
        return HostLines()
    rest = list(lines)
    missing = take_all(DevicesMissing, rest, (kinds.DEVICES_MISSING,), torn)
    return HostLines(
        num_cores=head.num_cores,
        samples=take_all(HostSample, rest, (kinds.HOST_SAMPLE,), torn),
        guestless=take_all(GuestlessPython, rest, (kinds.GUESTLESS,), torn),
        devices_missing=missing[0].missing if missing else None,
    )
