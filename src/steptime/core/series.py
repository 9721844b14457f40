"""What is drawn over the time of a run: the machine, the devices, the steps, what happened.

Made by `measure.series` from the files of a run; None means "not observed". Times of day are Unix
times [s], on one clock for the machine and all ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPoint:
    """The machine over the `dt_s` seconds before `t_unix_s`, from one look to the next.

    Attributes:
        busy_cores: CPU time of all, over the time [cores]; the others' is what `job_cores` leaves.
        job_cores: of the command's processes, DataLoader workers among them.
        worker_cores: of its DataLoader workers.
        job_resident_bytes: resident memory of the command's processes, shared pages counted once
            where the machine tells (proportional set size), else each time.
        worker_resident_bytes: the part of it in DataLoader workers.
        available_bytes: memory that the machine could still give.
        cached_bytes: page cache of the machine.
        swap_in_bytes: read from swap.
        disk_read_bytes, disk_write_bytes: what the command's processes fetched from and sent to
            storage, page cache not counted.
        io_wait_cores: cores that were idle because a disk was waited for.
        received_bytes, sent_bytes: network traffic of the machine, loopback apart.
        loopback_bytes: traffic over the loopback, what local ranks tell each other over sockets.
        clock_hz: mean clock of the cores.
    """

    t_unix_s: float
    dt_s: float
    busy_cores: float
    job_cores: float
    worker_cores: float | None = None
    job_resident_bytes: int | None = None
    worker_resident_bytes: int | None = None
    available_bytes: int | None = None
    cached_bytes: int | None = None
    swap_in_bytes: int | None = None
    disk_read_bytes: int | None = None
    disk_write_bytes: int | None = None
    io_wait_cores: float | None = None
    received_bytes: int | None = None
    sent_bytes: int | None = None
    loopback_bytes: int | None = None
    clock_hz: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePoint:
    """One accelerator at `t_unix_s`, as NVML says.

    Attributes:
        device: its UUID.
        busy_fraction: of the time, a kernel ran.
        sm_fraction, memory_active_fraction: of the multiprocessors' and of the memory's time.
        used_bytes: memory in use, by whomever.
        power_w: mean draw; `energy_j`: counted since the driver was loaded.
        sm_clock_hz, temperature_c: as they read; in degrees Celsius.
        throttle: machine words of what holds the clock down (`power_cap`, `thermal`, ...).
    """

    t_unix_s: float
    device: str
    busy_fraction: float | None = None
    sm_fraction: float | None = None
    memory_active_fraction: float | None = None
    used_bytes: int | None = None
    power_w: float | None = None
    energy_j: float | None = None
    sm_clock_hz: float | None = None
    temperature_c: float | None = None
    throttle: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPoint:
    """One step of one rank, or a block of `num_steps` of them as their mean."""

    rank: int
    index: int
    end_unix_s: float
    step_time_s: float
    wall_s: Mapping[str, float]
    num_steps: int = 1
    is_warmup: bool = False
    is_steady: bool = False
    is_outlier: bool = False
    is_disturbed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened in one rank beside its steps.

    `what` is a machine word: a span (`evaluation`, `checkpoint`, `epoch_start`, `compile`), `gc`,
    `recompile`, `graph_break`. `step` is the index of the step it fell into, or after which.
    """

    what: str
    rank: int
    t_unix_s: float
    seconds: float | None = None
    step: int | None = None
    count: int = 1
    text: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """All of it, each in order of time; `steps` thinned to what a page can show."""

    host: tuple[HostPoint, ...] = ()
    devices: tuple[DevicePoint, ...] = ()
    steps: tuple[StepPoint, ...] = ()
    events: tuple[Event, ...] = ()
