"""Finds lasting changes of the step time, and what changed with them.

In: a `RunSeries`. Out: `Shift`s, each with the numbers behind its causes. A cause changed at the
same time and in the fitting direction; that is no proof. The test itself is in
`diagnose.shifts.change_points`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from steptime.core.stats import median
from steptime.diagnose.ailments.memory.memory_limits import MIN_SWAP_BYTES_PER_S
from steptime.diagnose.ailments.scale import MIN_EXPLAINED, Threshold
from steptime.diagnose.ailments.signals import COMPUTE_PHASES
from steptime.diagnose.shifts.change_points import ChangePoint, find_changes
from steptime.diagnose.values.finding import Shift

if TYPE_CHECKING:
    from steptime.measure.values.over_time import DevicePoint, HostPoint, RunSeries, StepPoint

MIN_CLOCK_FRACTION = Threshold(
    name="MIN_CLOCK_FRACTION",
    value=0.05,
    why="a governor moves the clocks of a busy machine by some per cent by itself",
)
MIN_NEIGHBOR_CORES = Threshold(
    name="MIN_NEIGHBOR_CORES",
    value=0.25,
    why="what runs beside a training by itself (a desktop, a monitor) takes less",
)
MIN_READ_BYTES_PER_S = Threshold(
    name="MIN_READ_BYTES_PER_S",
    value=4 << 20,
    why="a slow disk reads ten times as much; less comes with the writing of logs",
)
MIN_MEMORY_FRACTION = Threshold(
    name="MIN_MEMORY_FRACTION",
    value=0.1,
    why="the page cache of a machine breathes by some per cent",
)
MIN_NEIGHBOR_PART = Threshold(
    name="MIN_NEIGHBOR_PART",
    value=0.25,
    why="waits for a core that make less than a quarter of a change are not what changed",
)
SAME_TIME_FRACTION = Threshold(
    name="SAME_TIME_FRACTION",
    value=0.1,
    why="of a run: ranks that wait for each other change within some steps",
)
SHIFT_THRESHOLDS = (
    *(MIN_CLOCK_FRACTION, MIN_NEIGHBOR_CORES, MIN_READ_BYTES_PER_S, MIN_MEMORY_FRACTION),
    *(SAME_TIME_FRACTION, MIN_NEIGHBOR_PART),
)

_Point = TypeVar("_Point", "HostPoint", "DevicePoint")

_LEAST_ON_CORE = 0.01
"""A thread that waits for nearly all of the time still has its turns."""

MIN_POINTS = 3
"""Fewest samples of the machine on either side: one may be a passing disturbance."""

MIN_COVERED_S = 3.0
"""Two samples do if they cover as much: where a sample costs much, there are fewer of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShiftCause:
    """What changed with a shift: `name` is a machine word of `Shift.causes`.

    `explains` orders the causes: it is the part of the change that the cause alone would make, as
    far as that can be computed.
    """

    name: str
    before: float
    after: float
    unit: str
    explains: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """A shift with the numbers behind its causes."""

    shift: Shift
    causes: tuple[ShiftCause, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sides:
    """The points of one rank and of the machine, before a shift and after it."""

    ratio: float
    steps: tuple[Sequence[StepPoint], Sequence[StepPoint]]
    host: tuple[Sequence[HostPoint], Sequence[HostPoint]]
    devices: tuple[Sequence[DevicePoint], Sequence[DevicePoint]]

    @property
    def is_slower(self) -> bool:
        return self.ratio > 1


def find_shifts(series: RunSeries) -> tuple[Explained, ...]:
    """Return the lasting changes of a run in order, of one rank where ranks change together.

    It is the rank whose own work, without communication, changed most: the others wait for it.
    """
    found = [(part, one) for part in _by_rank(series.steps) for one in _of_rank(part, series)]
    kept: list[tuple[float, Explained]] = []
    for steps, one in sorted(found, key=lambda pair: -_own_change(*pair)):
        near_s = SAME_TIME_FRACTION.value * (steps[-1].end_unix_s - steps[0].end_unix_s)
        t_unix_s = one.shift.t_unix_s
        if all(abs(t_unix_s - other.shift.t_unix_s) > near_s for _, other in kept):
            kept.append((t_unix_s, one))
    return tuple(one for _, one in sorted(kept, key=lambda pair: pair[0]))


def _by_rank(steps: Iterable[StepPoint]) -> list[list[StepPoint]]:
    """Return the points of each rank that count, in order."""
    ranks: dict[int, list[StepPoint]] = {}
    for point in steps:
        if point.is_steady and not point.is_outlier and point.step_time_s > 0:
            ranks.setdefault(point.rank, []).append(point)
    ordered = (sorted(ranks[rank], key=lambda point: point.index) for rank in sorted(ranks))
    return [points for points in ordered if points]


def _of_rank(steps: Sequence[StepPoint], series: RunSeries) -> list[Explained]:
    changes = find_changes([point.step_time_s for point in steps])
    edges = [0, *(change.index for change in changes), len(steps)]
    return [
        _explain(steps, series, change, begin=edges[i], end=edges[i + 2])
        for i, change in enumerate(changes)
    ]


def _explain(
    steps: Sequence[StepPoint], series: RunSeries, change: ChangePoint, *, begin: int, end: int
) -> Explained:
    left, right = steps[begin : change.index], steps[change.index : end]
    start_s, t_unix_s, end_s = left[0].end_unix_s, left[-1].end_unix_s, right[-1].end_unix_s
    sides = _Sides(
        ratio=change.ratio.estimate,
        steps=(left, right),
        host=(
            _enough([p for p in series.host if start_s <= _middle_s(p) <= t_unix_s]),
            _enough([p for p in series.host if t_unix_s < _middle_s(p) <= end_s]),
        ),
        devices=(
            [p for p in series.devices if start_s <= p.t_unix_s <= t_unix_s],
            [p for p in series.devices if t_unix_s < p.t_unix_s <= end_s],
        ),
    )
    causes = find_causes(sides)
    shift = Shift(
        rank=left[0].rank,
        index=right[0].index,
        t_unix_s=t_unix_s,
        before_s=change.before,
        after_s=change.after,
        ratio=change.ratio,
        causes=tuple(cause.name for cause in causes),
    )
    return Explained(shift=shift, causes=causes)


def _middle_s(point: HostPoint) -> float:
    """Return the middle of what a sample covers: it belongs to the side that most of it is on."""
    return point.t_unix_s - point.dt_s / 2


def _enough(points: list[HostPoint]) -> list[HostPoint]:
    """Return the samples of a side, none where they are too few to say what was usual there."""
    covered_s = math.fsum(point.dt_s for point in points)
    is_enough = len(points) >= MIN_POINTS or (len(points) > 1 and covered_s >= MIN_COVERED_S)
    return points if is_enough else []


def _own_change(steps: Sequence[StepPoint], one: Explained) -> float:
    """Return how much of a rank's change is its own work [s], not the wait for other ranks."""
    before = [p for p in steps if p.index < one.shift.index]
    after = [p for p in steps if p.index >= one.shift.index]
    exchange_s = _phase_s(after, "communication") - _phase_s(before, "communication")
    return abs(one.shift.after_s - one.shift.before_s - exchange_s)


# -- what changed with it


def find_causes(sides: _Sides) -> tuple[ShiftCause, ...]:
    """Return what changed with a shift, the best explanation first and the phases last."""
    asked = (
        _throttle(sides),
        _clock("device_clock", sides, [_of(it, lambda p: p.sm_clock_hz) for it in sides.devices]),
        _neighbor(sides) or _core_wait(sides),
        _clock("cpu_clock", sides, [_of(it, lambda p: p.clock_hz) for it in sides.host]),
        _rate("swap", sides, lambda p: p.swap_in_bytes, least=MIN_SWAP_BYTES_PER_S.value),
        _page_cache(sides),
        _memory(sides),
    )
    found = [cause for cause in asked if cause is not None]
    if not found and (more := _input_size(sides)) is not None:
        found.append(more)
    ordered = sorted(found, key=lambda cause: -cause.explains)
    return (*ordered, *_phases(sides))


def _throttle(sides: _Sides) -> ShiftCause | None:
    """Something holds the device's clock down on most points after, on few before."""
    before, after = (_mean(float(bool(p.throttle)) for p in side) for side in sides.devices)
    if before is None or after is None or not sides.is_slower:
        return None
    if after < MIN_EXPLAINED.value or before > MIN_EXPLAINED.value * after:
        return None
    return ShiftCause(name="throttle", before=before, after=after, unit="fraction", explains=1.0)


def _clock(name: str, sides: _Sides, clocks: Sequence[Sequence[float]]) -> ShiftCause | None:
    """A clock fell where steps are longer, or rose where they are shorter."""
    pair = _medians(clocks)
    if pair is None or min(pair) <= 0:
        return None
    factor = pair[0] / pair[1]
    if abs(math.log(factor)) < MIN_CLOCK_FRACTION.value or (factor > 1) != sides.is_slower:
        return None
    # With idle devices the clock falls because steps are longer: it explains at most its ratio.
    explains = min(1.0, math.log(factor) / math.log(sides.ratio))
    return ShiftCause(name=name, before=1.0, after=1 / factor, unit="x", explains=explains)


def _neighbor(sides: _Sides) -> ShiftCause | None:
    """Others took more cores where steps are longer, fewer where they are shorter."""
    pair = _medians([_of(side, _others) for side in sides.host])
    if pair is None or abs(pair[1] - pair[0]) < MIN_NEIGHBOR_CORES.value:
        return None
    if (pair[1] > pair[0]) != sides.is_slower:
        return None
    explains = _explained_by_delay(sides)
    if explains is None:
        ours = _medians([_of(side, _ours) for side in sides.host])
        lost = math.log(ours[0] / ours[1]) if ours and min(ours) > 0 else 0.0
        explains = min(1.0, max(MIN_EXPLAINED.value, lost / math.log(sides.ratio)))
    if explains < MIN_NEIGHBOR_PART.value:
        return None
    return ShiftCause(
        name="neighbor", before=pair[0], after=pair[1], unit="cores", explains=explains
    )


def _core_wait(sides: _Sides) -> ShiftCause | None:
    """Others took no more cores than before, or less, and the run lost its core more often.

    They must have taken some where steps are longer: the run's own workers may take cores, too.
    """
    explains = _explained_by_delay(sides) or 0.0
    others = _medians([_of(side, _others) for side in sides.host])
    pair = _medians([_of(side, _delayed) for side in sides.host])
    if pair is None or others is None or explains < MIN_EXPLAINED.value:
        return None
    if others[sides.is_slower] < MIN_NEIGHBOR_CORES.value:
        return None
    return ShiftCause(
        name="core_wait", before=pair[0], after=pair[1], unit="fraction", explains=explains
    )


def _explained_by_delay(sides: _Sides) -> float | None:
    """Return the part of the change that waits for a core make; None where they are not counted."""
    pair = _medians([_of(side, _delayed) for side in sides.host])
    if pair is None:
        return None
    before, after = (max(_LEAST_ON_CORE, 1 - one) for one in pair)
    return max(0.0, min(1.0, math.log(before / after) / math.log(sides.ratio)))


def _page_cache(sides: _Sides) -> ShiftCause | None:
    """The job reads more from storage than before: `page_cache` where the cache shrank too."""
    reads = _rate("disk", sides, lambda p: p.disk_read_bytes, least=MIN_READ_BYTES_PER_S.value)
    cached = _medians([_of(side, lambda p: p.cached_bytes) for side in sides.host])
    if reads is None or cached is None or not sides.is_slower:
        return reads
    # A cache that is full, or gives pages back, has dropped what is read again now.
    if cached[1] > (1 - MIN_MEMORY_FRACTION.value) * cached[0]:
        return reads
    return ShiftCause(
        name="page_cache", before=cached[0], after=cached[1], unit="bytes", explains=reads.explains
    )


def _rate(
    name: str, sides: _Sides, read: Callable[[HostPoint], float | None], *, least: float
) -> ShiftCause | None:
    """Bytes per second that at least doubled where steps are longer, or halved where shorter."""
    pair = _medians([_of(side, lambda p: _per_s(read(p), p.dt_s)) for side in sides.host])
    if pair is None or max(pair) < least or (pair[1] > pair[0]) != sides.is_slower:
        return None
    if min(pair) > MIN_EXPLAINED.value * max(pair):
        return None
    return ShiftCause(
        name=name, before=pair[0], after=pair[1], unit="bytes", explains=MIN_EXPLAINED.value
    )


def _memory(sides: _Sides) -> ShiftCause | None:
    """The available memory fell to half or less."""
    pair = _medians([_of(side, lambda p: p.available_bytes) for side in sides.host])
    if pair is None or not sides.is_slower or pair[1] > MIN_EXPLAINED.value * pair[0]:
        return None
    return ShiftCause(name="memory", before=pair[0], after=pair[1], unit="bytes", explains=0.25)


def _input_size(sides: _Sides) -> ShiftCause | None:
    """The arithmetic itself grew: its phases, with them the CPU time of a step, and a size of it.

    CPU time alone grows beside a neighbor, too, which shares caches and hardware threads.
    """
    before, after = (
        math.fsum(_phase_s(side, name) for name in COMPUTE_PHASES) for side in sides.steps
    )
    change_s = _step_s(sides.steps[1]) - _step_s(sides.steps[0])
    ours = _medians([_of(side, _ours) for side in sides.host])
    if before <= 0 or ours is None or min(ours) <= 0:
        return None
    if (after - before) / change_s < MIN_EXPLAINED.value:
        return None
    work = math.log(ours[1] / ours[0]) + math.log(sides.ratio)
    if min(work / math.log(sides.ratio), _grown_size(sides)) < MIN_EXPLAINED.value:
        return None
    return ShiftCause(name="input_size", before=1.0, after=math.exp(work), unit="x", explains=0.5)


def _grown_size(sides: _Sides) -> float:
    """Return the part of the change that the size that grew most makes; 0 where none is known."""
    sizes = ([point.sizes for point in side if point.sizes] for side in sides.steps)
    columns = zip(*(zip(*side, strict=True) for side in sizes), strict=False)
    pairs = [pair for pair in map(_medians, columns) if pair is not None and min(pair) > 0]
    grown = (math.log(after / before) / math.log(sides.ratio) for before, after in pairs)
    return max(grown, default=0.0)


def _phases(sides: _Sides) -> list[ShiftCause]:
    """Return the phases that show the change: each has half of it or more."""
    change_s = _step_s(sides.steps[1]) - _step_s(sides.steps[0])
    names = {name for side in sides.steps for point in side for name in point.wall_s}
    found = []
    for name in sorted(names):
        before, after = (_phase_s(side, name) for side in sides.steps)
        part = (after - before) / change_s if change_s else 0.0
        if part >= MIN_EXPLAINED.value:
            cause = ShiftCause(
                name=f"phase:{name}", before=before, after=after, unit="s", explains=part
            )
            found.append(cause)
    return sorted(found, key=lambda cause: -cause.explains)


# -- numbers of a side


def _others(point: HostPoint) -> float:
    return max(0.0, point.busy_cores - point.job_cores)


def _delayed(point: HostPoint) -> float | None:
    return point.delayed_fraction


def _ours(point: HostPoint) -> float:
    return point.job_cores


def _per_s(value: float | None, dt_s: float) -> float | None:
    return None if value is None or dt_s <= 0 else value / dt_s


def _of(points: Sequence[_Point], read: Callable[[_Point], float | None]) -> list[float]:
    return [value for value in map(read, points) if value is not None]


def _medians(sides: Sequence[Sequence[float]]) -> tuple[float, float] | None:
    """Return the medians of both sides; None where one side has too few values."""
    before, after = sides
    if min(len(before), len(after)) < MIN_POINTS - 1:
        return None
    return median(before), median(after)


def _mean(values: Iterable[float]) -> float | None:
    listed = list(values)
    return math.fsum(listed) / len(listed) if len(listed) >= MIN_POINTS else None


def _step_s(points: Sequence[StepPoint]) -> float:
    return median([point.step_time_s for point in points])


def _phase_s(points: Sequence[StepPoint], name: str) -> float:
    """Return the median of a phase; 0 where it was not observed."""
    values = [point.wall_s[name] for point in points if name in point.wall_s]
    return median(values) if values else 0.0
