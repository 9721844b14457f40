"""What the rules read out of a Measurement, and the one scale of severity.

In: a `Measurement`. Out: fractions, evidence, headroom, and the names of what was not observed.
docs/explanation/diagnosis.md has the reasons; the rules themselves are in `diagnose.rules`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from steptime.core.types import Evidence, Measurement, Phase, RankSummary, Severity

INFO_FRACTION = 0.10
"""Least share reported: headroom 1.11x; quiet step times alone scatter by 3 to 16 %."""

WARNING_FRACTION = 0.20
"""Headroom 1.25x: more than the noise of one run, so that a remedy can be shown to work."""

CRITICAL_FRACTION = 1 / 3
"""Headroom 1.50x: no other single remedy is likely to give more."""

MIN_STEADY_STEPS = 6
"""Fewest values with a distribution-free 95 % interval of their median (1 - 2 / 2**6)."""

COMPUTE_PHASES = (
    "forward",
    "loss",
    "forward_and_loss",
    "backward",
    "gradient_processing",
    "optimizer",
)
"""What the arithmetic of the training spends."""


def severity_of(fraction: float) -> Severity | None:
    """How much a share of the step matters; None below the scale."""
    if fraction >= CRITICAL_FRACTION:
        return Severity.CRITICAL
    if fraction >= WARNING_FRACTION:
        return Severity.WARNING
    return Severity.INFO if fraction >= INFO_FRACTION else None


def headroom(fraction: float) -> float | None:
    """Step time now over step time without this share; None where nothing would be left."""
    return 1 / (1 - fraction) if fraction < 1 else None


def phase_of(holder: Measurement | RankSummary, name: str) -> Phase | None:
    """The phase of a run or a rank if it was observed."""
    found = (phase for phase in holder.phases if phase.name == name)
    return next((phase for phase in found if phase.fraction is not None), None)


def fraction_of(holder: Measurement | RankSummary, name: str) -> float | None:
    """The phase's share of the steady window, or None if it was not observed."""
    phase = phase_of(holder, name)
    return phase.fraction if phase else None


def sum_fractions(measurement: Measurement, names: Iterable[str]) -> float:
    """Share of several phases together; what was not observed is in `other`."""
    return math.fsum(fraction_of(measurement, name) or 0.0 for name in names)


def cpu_fraction_of(measurement: Measurement, name: str) -> float | None:
    """The phase's median CPU time over the step's, or None if either was not observed."""
    phase, steady = phase_of(measurement, name), measurement.steady
    step_cpu_s = steady.step_cpu_s if steady else None
    if phase is None or phase.cpu_median_s is None or not step_cpu_s or step_cpu_s.median <= 0:
        return None
    return phase.cpu_median_s / step_cpu_s.median


def phase_evidence(measurement: Measurement, name: str) -> tuple[Evidence, ...]:
    """A phase's share, its median, and its share of CPU time, as far as observed."""
    phase = phase_of(measurement, name)
    if phase is None:
        return ()
    values = (
        (name, phase.fraction, "fraction"),
        (f"{name}_median", phase.median_s, "s"),
        (f"{name}_cpu", cpu_fraction_of(measurement, name), "fraction"),
    )
    return tuple(
        Evidence(name=label, value=value, unit=unit)
        for label, value, unit in values
        if value is not None
    )


def find_missing_signals(measurement: Measurement) -> tuple[str, ...]:
    """Signals that a rule asked for and that were not observed, by name."""
    is_distributed = any(rank.world_size > 1 for rank in measurement.ranks)
    missing = {
        "input_wait": fraction_of(measurement, "input_wait") is None,
        "communication": is_distributed and fraction_of(measurement, "communication") is None,
        "device_time": is_on_device(measurement) and compute_device_s(measurement) is None,
        "host_load": measurement.host is None,
    }
    return tuple(name for name, is_missing in missing.items() if is_missing)


def is_on_device(measurement: Measurement) -> bool:
    """True if any rank trains on something else than the CPU."""
    return any(rank.device != "cpu" for rank in measurement.ranks)


def compute_device_s(measurement: Measurement) -> float | None:
    """Sum of the compute phases' median device times [s], or None without device times."""
    phases = [phase_of(measurement, name) for name in COMPUTE_PHASES]
    times_s = [p.device_median_s for p in phases if p and p.device_median_s is not None]
    return math.fsum(times_s) if times_s else None
