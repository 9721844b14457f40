"""Rules that close a diagnosis: nothing can be said, or the arithmetic fills the step."""

from __future__ import annotations

from steptime.diagnose.ailments.signals import (
    COMPUTE_PHASES,
    compute_device_s,
    count,
    find_missing_signals,
    fraction_of,
    is_on_device,
    make_finding,
    median_step_s,
    phase_evidence,
    share,
    site_of,
    sum_fractions,
)
from steptime.diagnose.ailments.thresholds import (
    CRITICAL_FRACTION,
    INFO_FRACTION,
    MAX_HALF_WIDTH,
    MIN_STEADY_STEPS,
)
from steptime.diagnose.values.finding import BottleneckKind, Finding, Severity
from steptime.measure.values.measurement import Measurement


def find_compute(measurement: Measurement) -> Finding | None:
    """COMPUTE_BOUND: the arithmetic fills the step; on a device by the device's clock only."""
    if not is_on_device(measurement):
        fraction = sum_fractions(measurement, COMPUTE_PHASES)
    else:
        device_s, step_s = compute_device_s(measurement), median_step_s(measurement)
        if device_s is None or not step_s:
            return None
        fraction = device_s / step_s
    if fraction < 1 - INFO_FRACTION:
        return None
    return make_finding(
        BottleneckKind.COMPUTE_BOUND,
        None,
        severity=Severity.INFO,
        evidence=(share("compute", fraction),),
        missing=find_missing_signals(measurement),
    )


def find_no_steps(measurement: Measurement) -> Finding | None:
    """INCONCLUSIVE: no step was seen, or too few are left after warmup."""
    num_steady = measurement.steady.num_steps if measurement.steady else 0
    if num_steady >= MIN_STEADY_STEPS:
        return None
    return make_finding(
        BottleneckKind.INCONCLUSIVE,
        "too_few_steps" if measurement.num_steps else "no_steps",
        severity=Severity.WARNING,
        evidence=(
            count("num_steps", measurement.num_steps),
            count("num_steady_steps", num_steady),
            count("min_steady_steps", MIN_STEADY_STEPS),
        ),
    )


def find_noise(measurement: Measurement) -> Finding | None:
    """INCONCLUSIVE: step times scatter too much, in wall and in CPU time."""
    steady = measurement.steady
    times = (steady.step_time_s, steady.step_cpu_s) if steady else ()
    widths = [(q.high - q.low) / 2 / q.estimate for q in times if q is not None and q.estimate > 0]
    # Steps of several kinds widen the interval for a good reason.
    if (measurement.period or 1) > 1 or not widths or min(widths) <= MAX_HALF_WIDTH:
        return None
    names = ("step_time_half_width", "step_cpu_half_width")
    return make_finding(
        BottleneckKind.INCONCLUSIVE,
        "noise",
        severity=Severity.WARNING,
        evidence=[share(name, width) for name, width in zip(names, widths, strict=False)],
        missing=find_missing_signals(measurement),
    )


def find_unattributed(measurement: Measurement) -> Finding | None:
    """INCONCLUSIVE: most of what could be gained is in code that no marker explains."""
    other, prepare = fraction_of(measurement, "other"), measurement.prepare_fraction
    # Where preparing a batch is a finding of its own, it has a name.
    named = prepare if prepare is not None and prepare >= INFO_FRACTION else 0.0
    fraction = None if other is None else other - named
    if fraction is None or fraction < CRITICAL_FRACTION:
        return None
    return make_finding(
        BottleneckKind.INCONCLUSIVE,
        "unattributed_time",
        severity=Severity.WARNING,
        evidence=(share("unattributed", fraction), *phase_evidence(measurement, "other")),
        fraction=fraction,
        site=site_of(measurement, "other"),
        missing=find_missing_signals(measurement),
    )
