"""Rules on data: the step waits for it, or the run waits between the steps.

Each takes a Measurement and gives a Finding, or None where it does not apply; the thresholds and
the reasons are in docs/explanation/diagnosis.md.
"""

from __future__ import annotations

from steptime.core.evidence import Evidence
from steptime.diagnose.ailments.contention import missing_beside_phases
from steptime.diagnose.ailments.signals import (
    apart_fraction,
    count,
    fraction_of,
    make_finding,
    phase_evidence,
    phase_of,
    seconds,
    severity_of,
    share,
    site_of,
)
from steptime.diagnose.ailments.thresholds import MIN_EXPLAINED, MIN_SPANS
from steptime.diagnose.values.finding import BottleneckKind, Finding
from steptime.measure.values.measurement import Measurement


def find_input_wait(measurement: Measurement) -> Finding | None:
    """INPUT_BOUND: the step waits for data."""
    fraction = fraction_of(measurement, "input_wait")
    severity = severity_of(fraction)
    if fraction is None or severity is None:
        return None
    cause = _input_cause(measurement, fraction)
    unseen = () if cause else ("fetch", "workers")
    return make_finding(
        BottleneckKind.INPUT_BOUND,
        cause,
        severity=severity,
        evidence=(*phase_evidence(measurement, "input_wait"), *_input_evidence(measurement)),
        fraction=fraction,
        # In process the wait is spent in its parts, which leave no time to the wait itself.
        site=site_of(measurement, cause) or site_of(measurement, "input_wait"),
        missing=missing_beside_phases(measurement, *unseen),
    )


def _input_cause(measurement: Measurement, fraction: float) -> str | None:
    """What the wait is spent on, in this process or in the workers."""
    fetch, collate = (fraction_of(measurement, name) for name in ("fetch", "collate"))
    if fetch is not None and collate is not None:
        largest, cause = max((fetch, "fetch"), (collate, "collate"))
        return cause if largest >= MIN_EXPLAINED * fraction else "loader"
    workers, wait = measurement.workers, phase_of(measurement, "input_wait")
    if workers is None or wait is None or wait.median_s is None:
        return None
    num_batches = workers.num_batches / max(1, measurement.num_steps)
    work_s = (workers.fetch_s_per_batch + workers.collate_s_per_batch) * num_batches
    if work_s < MIN_EXPLAINED * wait.median_s:
        return None  # starved of cores, or the batch is slow to hand over
    is_fetch = workers.fetch_s_per_batch >= workers.collate_s_per_batch
    return "worker_fetch" if is_fetch else "worker_collate"


def _input_evidence(measurement: Measurement) -> tuple[Evidence, ...]:
    workers = measurement.workers
    inner = (*phase_evidence(measurement, "fetch"), *phase_evidence(measurement, "collate"))
    if inner or workers is None:
        return inner
    return (
        count("num_workers", workers.num_workers),
        seconds("worker_fetch_per_batch", workers.fetch_s_per_batch),
        seconds("worker_collate_per_batch", workers.collate_s_per_batch),
    )


def find_preprocessing(measurement: Measurement) -> Finding | None:
    """INPUT_BOUND: the script works on a batch between the loader and the model."""
    fraction = measurement.prepare_fraction
    severity = severity_of(fraction)
    if fraction is None or severity is None:
        return None
    return make_finding(
        BottleneckKind.INPUT_BOUND,
        "preprocessing",
        severity=severity,
        evidence=(share("preprocessing", fraction), *phase_evidence(measurement, "other")),
        fraction=fraction,
        site=site_of(measurement, "other"),
        missing=missing_beside_phases(measurement),
    )


def find_copies(measurement: Measurement) -> Finding | None:
    """INPUT_BOUND: the step waits for copies from host to device."""
    fraction = fraction_of(measurement, "h2d")
    severity = severity_of(fraction)
    if fraction is None or severity is None:
        return None
    return make_finding(
        BottleneckKind.INPUT_BOUND,
        "copies",
        severity=severity,
        evidence=(
            *phase_evidence(measurement, "h2d"),
            count("copies", measurement.copies_per_step or 0),
        ),
        fraction=fraction,
        site=site_of(measurement, "h2d"),
        missing=missing_beside_phases(measurement),
    )


def find_worker_startup(measurement: Measurement) -> Finding | None:
    """INPUT_BOUND: workers are started again and again, which is kept apart from the steps."""
    return _find_span(measurement, "epoch_start", BottleneckKind.INPUT_BOUND, "worker_startup")


def find_evaluation(measurement: Measurement) -> Finding | None:
    """No bottleneck of the step: evaluation takes much of the run."""
    return _find_span(measurement, "evaluation", None, "evaluation")


def find_checkpoint(measurement: Measurement) -> Finding | None:
    """No bottleneck of the step: checkpoints take much of the run."""
    return _find_span(measurement, "checkpoint", None, "checkpoint")


def _find_span(
    measurement: Measurement, name: str, kind: BottleneckKind | None, cause: str
) -> Finding | None:
    span = next((span for span in measurement.spans if span.name == name), None)
    if span is None or span.num_steps_touched < MIN_SPANS:
        return None
    fraction = apart_fraction(measurement, span.total_s)
    severity = severity_of(fraction)
    if fraction is None or severity is None:
        return None
    return make_finding(
        kind,
        cause,
        severity=severity,
        evidence=(
            share(name, fraction),
            seconds(f"{name}_total", span.total_s),
            count(f"num_{name}s", span.num_steps_touched),
        ),
        fraction=fraction,
        site=site_of(measurement, name),
    )
