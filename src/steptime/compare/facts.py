"""Takes from a measured run what a comparison needs.

In: a Measurement and the CommandRecord of its run. Out: a ComparedRun.
"""

from __future__ import annotations

import math

from steptime.compare.traits import traits_of
from steptime.compare.values import ComparedRun
from steptime.core.interval import Interval
from steptime.launch.values import CommandRecord
from steptime.measure.values.measurement import PHASES, Measurement, SteadyWindow

_Z = 1.96  # half of a 95 % interval is 1.96 standard errors


def take_run(
    measurement: Measurement, record: CommandRecord, *, place: str, by_cpu: bool = False
) -> ComparedRun:
    """Return what a comparison needs of one run; times that are not positive are absent.

    Args:
        measurement: of the run.
        record: of its command.
        place: path of its folder.
        by_cpu: take the CPU time of a step; what lies beside the steps has none, and is absent.
    """
    steady, host = measurement.steady, measurement.host
    phases_s = _cpu_phases_s(measurement) if by_cpu else {}
    step_s = math.fsum(phases_s.values()) if by_cpu else _step_s(steady)
    if not is_time(step_s):
        step_s = None
    window_s = None if steady is None else steady.step_cpu_s if by_cpu else steady.step_time_s
    duration_s = None if by_cpu else measurement.duration_s
    return ComparedRun(
        run_id=measurement.run_id,
        place=place,
        command=measurement.command,
        started_unix_s=measurement.started_unix_s,
        duration_s=duration_s if is_time(duration_s) else None,
        end=measurement.end,
        num_steps=measurement.num_steps,
        num_counted=0 if steady is None else steady.num_steps,
        step_s=step_s,
        error_fraction=_error_fraction(window_s),
        phases_s=phases_s if by_cpu else _phases_s(measurement, step_s),
        spans_s={} if by_cpu else {span.name: span.total_s for span in measurement.spans},
        others_cores=None if host is None else host.others_cores,
        host=record.machine.hostname_hash or "",
        traits=traits_of(measurement, record),
    )


def _step_s(steady: SteadyWindow | None) -> float | None:
    if steady is None:
        return None
    if steady.mean_s is None and steady.step_time_s is not None:
        return steady.step_time_s.estimate
    return steady.mean_s


def _cpu_phases_s(measurement: Measurement) -> dict[str, float]:
    """Return the mean CPU time of each phase [s]; together they are that of a step."""
    return {
        phase.name: phase.cpu_mean_s
        for phase in measurement.phases
        if phase.name in PHASES and phase.cpu_mean_s is not None
    }


def is_time(value: float | None) -> bool:
    """Return whether the value can be a time: neither NaN nor infinite, and above zero."""
    return value is not None and math.isfinite(value) and value > 0


def _error_fraction(step_time_s: Interval | None) -> float:
    """Return the standard error of a run's own step time, as a fraction of that time."""
    if step_time_s is None or not is_time(step_time_s.estimate):
        return 0.0
    error = (step_time_s.high - step_time_s.low) / 2 / _Z / step_time_s.estimate
    return error if math.isfinite(error) else 0.0


def _phases_s(measurement: Measurement, step_s: float | None) -> dict[str, float]:
    """Return each phase's share of the mean step: phases of a few steps count, and all add up."""
    if step_s is None:
        return {}
    return {
        phase.name: phase.fraction * step_s
        for phase in measurement.phases
        if phase.name in PHASES and phase.fraction is not None
    }
