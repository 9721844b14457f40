"""The peak of a command that was observed, with its interval, and whether it fits into a limit."""

from __future__ import annotations

from collections.abc import Mapping

from steptime.measure.values.model.longest import PeakForecast
from steptime.tune.fit.bench_answers import Observed
from steptime.tune.fit.held_parts import CONTEXT, peak_to_come, total_of
from steptime.tune.fit.peak_forecast import DIED, MORE_CONTEXT_BYTES
from steptime.tune.values.fit_values import FitPeak

SPREAD = 0.03
"""Of a peak that was observed: the same command's peaks differed by up to 2 % from run to run."""


def describe_peak(
    observed: Observed, parts: Mapping[str, int], *, died: bool, has_context: bool = False
) -> FitPeak:
    """Return the peak with what is not known of it; `has_context`: the device's is measured."""
    estimate = total_of(parts)
    measurement = observed.baseline.measurement
    memory = measurement.memory
    unknown = []
    coming = None if died else peak_to_come(measurement)
    if died:
        unknown.append(DIED)
        estimate = max(estimate, observed.cap_bytes)
    if memory is None:
        unknown.append("no_anatomy")
    elif coming is not None:
        unknown.append("largest_to_come")
    elif memory.run_peak is not None and memory.run_peak.how == "at_least":
        unknown.append("larger_steps")
    if not observed.peak_bytes:
        unknown.append("no_process_memory")
    is_guessed = CONTEXT in parts and not has_context
    if is_guessed:
        unknown.append("context_of_the_device")
    less, more = (0, 0) if coming is None else _margins(coming)
    more += MORE_CONTEXT_BYTES if is_guessed else 0
    known = "observed" if coming is None else "forecast"
    return FitPeak(
        estimate=estimate,
        low=round(estimate if died else estimate * (1 - SPREAD)) - less,
        high=round(estimate * (1 + SPREAD)) + more,
        by_category=dict(parts),
        how="at_least" if set(unknown) - {"context_of_the_device", "largest_to_come"} else known,
        num_steps=measurement.num_steps,
        unknown=tuple(unknown),
    )


def _margins(coming: PeakForecast) -> tuple[int, int]:
    """Return by how much a forecast may be too high, and too low."""
    return coming.estimate - coming.low, coming.high - coming.estimate


def compare(peak: FitPeak, limit_bytes: int, *, least_bytes: int) -> bool | None:
    """Return whether a peak fits into a limit; None where only a run under the limit can tell.

    `least_bytes` is what a command that died for want of memory needed at least.
    """
    if DIED in peak.unknown and limit_bytes <= least_bytes:
        return False
    if peak.low > limit_bytes:
        return False
    if peak.high <= limit_bytes and peak.how != "at_least":
        return True
    return None
