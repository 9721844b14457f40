"""The values that are drawn over the time of a run: the machine, the devices, steps and events.

`measure.series.run_series` makes them from the files of a run; None means "not observed". Times of
day are Unix times [s], on one clock for the machine and all ranks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPoint:
    """The machine over the `dt_s` seconds before `t_unix_s`, from one sample to the next.

    Attributes:
        busy_cores: cores that all processes kept busy; without `job_cores`, those of others.
        job_cores: cores that the command's processes kept busy, including DataLoader workers.
        worker_cores: cores that its DataLoader workers kept busy.
        job_resident_bytes: resident memory of the command's processes; shared pages count once
            where the machine reports proportional set size, else in each process [bytes].
        worker_resident_bytes: the part of this memory in DataLoader workers [bytes].
        available_bytes: memory that the machine still had available [bytes].
        cached_bytes: page cache of the machine [bytes].
        swap_in_bytes: bytes that were read from swap.
        disk_read_bytes, disk_write_bytes: bytes that the command's processes read from and wrote
            to storage; the page cache does not count.
        io_wait_cores: cores that were idle because they waited for a disk.
        received_bytes, sent_bytes: network traffic of the machine, without the loopback.
        loopback_bytes: traffic over the loopback, by which local ranks talk over sockets.
        clock_hz: mean clock of the cores [Hz].
        delayed_fraction: part of the time for which a thread of the command waited for a core.
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
    delayed_fraction: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePoint:
    """One accelerator at `t_unix_s`, as NVML says.

    Attributes:
        device: UUID of the device.
        busy_fraction: share of the time in which a kernel ran.
        sm_fraction, memory_active_fraction: share of the multiprocessors' and the memory's time
            that was in use.
        used_bytes: memory in use by all processes [bytes].
        power_w: mean power [W]; `energy_j` is the energy since the driver was loaded [J].
        sm_clock_hz, temperature_c: clock [Hz] and temperature [degrees Celsius] as NVML reads them.
        throttle: what holds the clock down, as machine words (`power_cap`, `thermal`, ...).
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
    """One step of one rank, or the mean of `num_steps` steps.

    `wall_s` has every phase that partitions a step. It is empty where they are not known, such as
    for one of the steps that the guest writes in sums. An outlier took far longer than its
    neighbors. Steps that compile, and those that our probe made longer, are disturbed.
    `sizes` is what the work goes by (`record.buckets.SIZES`); empty where that was not watched.
    """

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
    sizes: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something other than a step that happened in one rank.

    `what` is a machine word: a span (`evaluation`, `checkpoint`, `epoch_start`, `compile`), `gc`,
    `recompile`, `graph_break`. `step` is the index of the step that it fell into or followed.
    `t_unix_s` is when it began; the `seconds` of a recompile are part of those of `compile` too.
    """

    what: str
    rank: int
    t_unix_s: float
    seconds: float | None = None
    step: int | None = None
    count: int = 1
    text: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """A piece of one thread's time that belongs to one phase or span, by its markers.

    Slices are known for the first 2,000 updates and for sampled updates after them. `thread` 0 is
    the first thread that stepped.
    """

    rank: int
    thread: int
    name: str
    t_unix_s: float
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSeries:
    """All series of a run, each in order of time; `steps` are thinned to what a page can show."""

    host: tuple[HostPoint, ...] = ()
    devices: tuple[DevicePoint, ...] = ()
    steps: tuple[StepPoint, ...] = ()
    events: tuple[Event, ...] = ()

    def energy_per_step_j(self) -> float | None:
        """Return the devices' energy per step, over the steps that count [J]; None if unknown.

        It includes evaluations and checkpoints between these steps. Energy between two samples
        grows evenly; a device that does not count its energy gets its power times the time.
        """
        ranks = {point.rank for point in self.steps if point.is_steady}
        steady = [p for p in self.steps if p.is_steady and p.rank == min(ranks)]
        num_steps = sum(point.num_steps for point in steady)
        names = dict.fromkeys(point.device for point in self.devices)
        if not steady or not names:
            return None
        begin = steady[0].end_unix_s - steady[0].num_steps * steady[0].step_time_s
        drawn = [
            _energy_between([p for p in self.devices if p.device == name], begin, steady[-1])
            for name in names
        ]
        known = [energy for energy in drawn if energy is not None]
        return sum(known) / num_steps if len(known) == len(names) else None


def _energy_between(
    points: Sequence[DevicePoint], begin_unix_s: float, last: StepPoint
) -> float | None:
    """Return a device's energy from a time to a step's end [J]; None if no samples span it."""
    course = _energy_course(points)
    begin, end = (_at(course, t) for t in (begin_unix_s, last.end_unix_s))
    return None if begin is None or end is None else end - begin


def _energy_course(points: Sequence[DevicePoint]) -> list[tuple[float, float]]:
    """Return energy at each sample, as the device counted it or summed up from its power."""
    counted = [(p.t_unix_s, p.energy_j) for p in points if p.energy_j is not None]
    if len(counted) >= 2:
        return counted
    course: list[tuple[float, float]] = []
    for point in (point for point in points if point.power_w is not None):
        before_s, energy_j = course[-1] if course else (point.t_unix_s, 0.0)
        course.append(
            (point.t_unix_s, energy_j + (point.power_w or 0.0) * (point.t_unix_s - before_s))
        )
    return course


def _at(course: Sequence[tuple[float, float]], t_unix_s: float) -> float | None:
    """Return the energy between two samples, or up to one interval before or after all of them."""
    if len(course) < 2:
        return None
    place = min(max(1, bisect_left(course, (t_unix_s, 0.0))), len(course) - 1)
    (t0, e0), (t1, e1) = course[place - 1 : place + 1]
    part = (t_unix_s - t0) / (t1 - t0) if t1 > t0 else 0.0
    return e0 + (e1 - e0) * part if -1.0 <= part <= 2.0 else None
