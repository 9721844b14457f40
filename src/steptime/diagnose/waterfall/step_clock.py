"""Chooses the one clock on which a step is cut, and divides the step's time on it into phases.

In: a Measurement whose operators were timed. Out: a `StepClock`. Wall time is what a user waits
for, and the clock of a quiet machine. Beside programs that keep the machine full, wall time is
partly theirs; then CPU time is the run's own, where one thread computes. Times of the two are never
in one picture.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from steptime.diagnose.ailments.contention import find_contention
from steptime.diagnose.ailments.own_share import waiting_fractions
from steptime.diagnose.ailments.signals import fraction_of, is_on_device, phase_of
from steptime.diagnose.values.finding import Severity
from steptime.measure.values.measurement import PHASES, Measurement
from steptime.measure.values.model.work import Count

WALL, CPU = "wall", "cpu"

MIN_WAIT = 0.01
"""A wait of a smaller share of the step is not worth naming."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepClock:
    """A step on one clock.

    Attributes:
        name: `wall` or `cpu`.
        step_s: the median step on this clock [s].
        wall_s: the median step in wall time [s].
        shares: of the phases, on this clock.
        waits: on `cpu`, by phase, the waits that this clock does not show [s of wall time].
        is_disturbed: others kept the machine full, and the clock shows their part, too.
    """

    name: str
    step_s: float
    wall_s: float
    shares: Mapping[str, float]
    waits: Mapping[str, float]
    is_disturbed: bool = False


def choose_clock(measurement: Measurement, count: Count, *, wall_s: float) -> StepClock:
    """Return the clock for the waterfall of a run with a median step of `wall_s` seconds."""
    found = find_contention(measurement)
    is_full = found is not None and found.severity is not Severity.INFO
    cpu = None
    if is_full and count.clock != WALL and not is_on_device(measurement):
        cpu = _cpu_clock(measurement, wall_s)
    if cpu is not None:
        return cpu
    shares = {name: fraction_of(measurement, name) or 0.0 for name in PHASES}
    return StepClock(
        name=WALL,
        step_s=wall_s,
        wall_s=wall_s,
        shares=shares,
        waits={},
        is_disturbed=is_full and not is_on_device(measurement),
    )


def is_of_other_clock(measurement: Measurement, count: Count) -> bool:
    """Return whether operators were timed by CPU time although several threads computed."""
    threads = max((rank.num_threads or 1 for rank in measurement.ranks[:1]), default=1)
    return count.clock != WALL and threads > 1 and not is_on_device(measurement)


def _cpu_clock(measurement: Measurement, wall_s: float) -> StepClock | None:
    """Return the step in CPU time; None where CPU time by phase is not known."""
    steady = measurement.steady
    step = None if steady is None or steady.step_cpu_s is None else steady.step_cpu_s.estimate
    found = [phase for name in PHASES if (phase := phase_of(measurement, name)) is not None]
    known = {one.name: one.cpu_median_s for one in found if one.cpu_median_s is not None}
    total_s = math.fsum(known.values())
    if total_s <= 0 or any(one.fraction and one.name not in known for one in found):
        return None
    waits = waiting_fractions(measurement)
    return StepClock(
        name=CPU,
        step_s=step or total_s,  # medians need not add up; their shares do
        wall_s=wall_s,
        shares={name: time_s / total_s for name, time_s in known.items()},
        waits={name: share * wall_s for name, share in waits.items() if share >= MIN_WAIT},
    )
