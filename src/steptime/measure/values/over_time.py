"""What is drawn over the time of a run: the machine, the devices, the steps, what happened.

Made by `measure.series.run_series` from the files of a run; None means "not observed". Times of
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
    """One step of one rank, or `num_steps` of them as their mean.

    `wall_s` has every phase that partitions a step; it is empty where they are not known, as of
    one step out of those that the guest writes in sums. An outlier took far longer than its
    neighbors; steps that compile, and those that a probe of ours made longer, are disturbed.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened in one rank beside its steps.

    `what` is a machine word: a span (`evaluation`, `checkpoint`, `epoch_start`, `compile`), `gc`,
    `recompile`, `graph_break`. `step` is the index of the step it fell into, or after which.
    `t_unix_s` is when it began; `seconds` of a recompile are in those of `compile` too.
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
    """A piece of one thread's time that belongs to one phase or span, as its markers stood.

    Known for the first 2,000 updates and a sample after. `thread` 0 is the first that stepped.
    """

    rank: int
    thread: int
    name: str
    t_unix_s: float
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSeries:
    """All of it, each in order of time; `steps` thinned to what a page can show."""

    host: tuple[HostPoint, ...] = ()
    devices: tuple[DevicePoint, ...] = ()
    steps: tuple[StepPoint, ...] = ()
    events: tuple[Event, ...] = ()

    def energy_per_step_j(self) -> float | None:
        """What the devices drew a step, over the steps that count [J]; None where unknown.

        Evaluations and checkpoints between these steps are in it. Energy between two samples grows
        evenly; a device that does not count it has its power times the time.
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
    """Of one device, from a time to the end of a step [J]; None if its samples do not span it."""
    course = _energy_course(points)
    begin, end = (_at(course, t) for t in (begin_unix_s, last.end_unix_s))
    return None if begin is None or end is None else end - begin


def _energy_course(points: Sequence[DevicePoint]) -> list[tuple[float, float]]:
    """Energy at each sample: as counted, else summed up from the power."""
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
    """Between two samples, or up to one interval before the first or after the last."""
    if len(course) < 2:
        return None
    place = min(max(1, bisect_left(course, (t_unix_s, 0.0))), len(course) - 1)
    (t0, e0), (t1, e1) = course[place - 1 : place + 1]
    part = (t_unix_s - t0) / (t1 - t0) if t1 > t0 else 0.0
    return e0 + (e1 - e0) * part if -1.0 <= part <= 2.0 else None
