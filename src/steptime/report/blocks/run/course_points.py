"""Groups points for the plots of a run, so that there are few enough to draw.

In: all values of a Series. Out: the same in a few hundred groups. A run of a week must not make a
larger page than one of an hour.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from steptime.core.stats import median
from steptime.measure.values.measurement import PHASES
from steptime.measure.values.over_time import DevicePoint, Event, HostPoint, StepPoint

MAX_GROUPS = 500
"""More points than this cannot be distinguished in the pixels of a plot."""

MAX_PHASE_BINS = 120
MAX_EVENTS = 800

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseBin:
    """Neighboring steps together; `wall_s` is the mean of a step by phase, in their order."""

    start_unix_s: float
    end_unix_s: float
    first: int
    wall_s: tuple[tuple[str, float], ...]


def grouped(points: Sequence[T], size: int = MAX_GROUPS) -> list[Sequence[T]]:
    """Return at most `size` groups of neighbors, as equal in size as possible."""
    num = min(size, len(points))
    edges = [i * len(points) // num for i in range(num + 1)] if num else []
    return [points[a:b] for a, b in itertools.pairwise(edges)]


def mean_of(group: Iterable[T], get: Callable[[T], float | None]) -> float | None:
    """Return the mean of the observed numbers, or None if nothing was observed."""
    seen = [v for v in map(get, group) if v is not None and math.isfinite(v)]
    return math.fsum(seen) / len(seen) if seen else None


def rate_of(group: Iterable[HostPoint], get: Callable[[HostPoint], float | None]) -> float | None:
    """Return the count per second over the group, or None if nothing was counted."""
    pairs = [(get(point), point.dt_s) for point in group]
    seen = [(n, dt_s) for n, dt_s in pairs if n is not None and dt_s > 0]
    return math.fsum(n for n, _ in seen) / math.fsum(dt for _, dt in seen) if seen else None


def phase_bins(steps: Sequence[StepPoint], size: int = MAX_PHASE_BINS) -> list[PhaseBin]:
    """Return what usual steps are made of over time, as a mean over the ranks.

    Outliers, and steps that a probe or a stall made longer, are left out if there are other steps.
    """
    seen = sorted((s for s in steps if s.wall_s), key=lambda step: step.end_unix_s)
    usual = [s for s in seen if not s.is_outlier and not s.is_disturbed]
    return [_bin(group) for group in grouped(usual or seen, size)]


def _bin(group: Sequence[StepPoint]) -> PhaseBin:
    count = sum(step.num_steps for step in group)
    names = [name for name in PHASES if any(step.wall_s.get(name) for step in group)]
    first = group[0]
    return PhaseBin(
        start_unix_s=first.end_unix_s - first.step_time_s * first.num_steps,
        end_unix_s=group[-1].end_unix_s,
        first=min(step.index for step in group),
        wall_s=tuple(
            (name, math.fsum(s.wall_s.get(name, 0.0) * s.num_steps for s in group) / count)
            for name in names
        ),
    )


def usual_top(values: Sequence[float], shown: Sequence[float] = ()) -> float | None:
    """Return the end of an axis that shows usual values; higher ones are marked at its edge.

    It is a tenth above the largest if that is near the others, otherwise three times the median:
    one step of a minute must not flatten a thousand of 10 ms.

    Args:
        values: the values that count, and that determine what is usual.
        shown: all values that are drawn, if there are more.
    """
    usual, drawn = _sizes(values), _sizes((*values, *shown))
    if not usual or drawn[-1] <= 0:
        return None
    nearly_all = usual[min(len(usual) - 1, math.ceil(0.98 * len(usual)))]
    return 1.1 * min(drawn[-1], max(3 * median(usual), 1.3 * nearly_all))


def _sizes(values: Iterable[float]) -> list[float]:
    return sorted(v for v in values if math.isfinite(v) and v >= 0)


def own_time_s(step: StepPoint) -> float:
    """Return a rank's own time in a step: all but communication."""
    return step.step_time_s - step.wall_s.get("communication", 0.0)


def longest_events(events: Sequence[Event], size: int = MAX_EVENTS) -> list[Event]:
    """Return at most `size` events, the longest and most counted, in order of time."""
    kept = sorted(events, key=lambda e: (-(e.seconds or 0.0), -e.count))[:size]
    return sorted(kept, key=lambda e: e.t_unix_s)


def throttled_periods(
    points: Sequence[DevicePoint], size: int = MAX_EVENTS
) -> list[tuple[str, tuple[str, ...], float, float]]:
    """Return when a device was throttled: its name, the reasons, and the first and last sample."""
    found = []
    for name in dict.fromkeys(point.device for point in points):
        own = (point for point in points if point.device == name)
        for reasons, period in itertools.groupby(own, key=lambda point: point.throttle):
            times = [point.t_unix_s for point in period]
            if reasons:
                found.append((name, reasons, times[0], times[-1]))
    return sorted(found, key=lambda period: period[2] - period[3])[:size]
