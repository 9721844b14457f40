"""The rules: each takes a Measurement and gives a Finding, or None where it does not apply.

One small function a rule; the thresholds and the reasons are in docs/explanation/diagnosis.md.
Which finding is primary is left to `diagnose.engine`.
"""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

from steptime.core.types import (
    PHASES,
    BottleneckKind,
    Evidence,
    Finding,
    HostLoad,
    Measurement,
    RankSummary,
    Severity,
)
from steptime.diagnose.signals import (
    COMPUTE_PHASES,
    CRITICAL_FRACTION,
    INFO_FRACTION,
    MIN_STEADY_STEPS,
    WARNING_FRACTION,
    compute_device_s,
    find_missing_signals,
    fraction_of,
    headroom,
    is_on_device,
    phase_evidence,
    severity_of,
    sum_fractions,
)

MIN_IDLE_CORES = 0.5
"""With half a core idle on average there was room for the job beside the others."""

MAX_HALF_WIDTH = WARNING_FRACTION
"""Widest interval, to one side, over the median: a change as large as a warning must show."""

MIN_EXPLAINED = 0.5
"""A cause is named if it explains at least half of the time in question."""


def find_input_wait(measurement: Measurement) -> Finding | None:
    """INPUT_BOUND: the step waits for data."""
    fraction = fraction_of(measurement, "input_wait")
    severity = None if fraction is None else severity_of(fraction)
    if fraction is None or severity is None:
        return None
    cause = _input_cause(measurement, fraction)
    return Finding(
        kind=BottleneckKind.INPUT_BOUND,
        cause=cause,
        severity=severity,
        evidence=(*phase_evidence(measurement, "input_wait"), *_input_evidence(measurement)),
        headroom_speedup=headroom(fraction),
        missing=_missing_beside_phases(measurement, *(() if cause else ("fetch", "workers"))),
    )


def _input_cause(measurement: Measurement, fraction: float) -> str | None:
    """What the wait is spent on, in this process or in the workers."""
    fetch, collate = (fraction_of(measurement, name) for name in ("fetch", "collate"))
    if fetch is not None and collate is not None:
        largest, cause = max((fetch, "fetch"), (collate, "collate"))
        return cause if largest >= MIN_EXPLAINED * fraction else "loader"
    workers = measurement.workers
    if workers is None:
        return None
    is_fetch = workers.fetch_s_per_batch >= workers.collate_s_per_batch
    return "worker_fetch" if is_fetch else "worker_collate"


def _input_evidence(measurement: Measurement) -> tuple[Evidence, ...]:
    workers = measurement.workers
    inner = (*phase_evidence(measurement, "fetch"), *phase_evidence(measurement, "collate"))
    if inner or workers is None:
        return inner
    return (
        Evidence(name="num_workers", value=float(workers.num_workers), unit="count"),
        Evidence(name="worker_fetch_per_batch", value=workers.fetch_s_per_batch, unit="s"),
        Evidence(name="worker_collate_per_batch", value=workers.collate_s_per_batch, unit="s"),
    )


def find_worker_startup(measurement: Measurement) -> Finding | None:
    """INPUT_BOUND: workers are started again and again, which is kept apart from the steps."""
    starts = next((s for s in measurement.spans if s.name == "epoch_start"), None)
    steady = measurement.steady
    if starts is None or starts.num_steps_touched < 2 or not steady or not steady.step_time_s:
        return None
    steps_s = steady.step_time_s.median * measurement.num_steps
    fraction = starts.total_s / (starts.total_s + steps_s)
    severity = severity_of(fraction)
    if severity is None:
        return None
    return Finding(
        kind=BottleneckKind.INPUT_BOUND,
        cause="worker_startup",
        severity=severity,
        evidence=(
            Evidence(name="epoch_start", value=fraction, unit="fraction"),
            Evidence(name="epoch_start_total", value=starts.total_s, unit="s"),
            Evidence(name="num_epoch_starts", value=float(starts.num_steps_touched), unit="count"),
        ),
        headroom_speedup=headroom(fraction),
    )


def find_communication(measurement: Measurement) -> Finding | None:
    """COMMUNICATION_BOUND: the part of communication that even the last rank to arrive pays."""
    by_rank = _communication(measurement.ranks)
    severity = severity_of(min(by_rank)) if by_rank else None
    if severity is None:
        return None
    fraction = min(by_rank)
    return Finding(
        kind=BottleneckKind.COMMUNICATION_BOUND,
        cause="collectives",
        severity=severity,
        evidence=(
            Evidence(name="least_communication", value=fraction, unit="fraction"),
            *phase_evidence(measurement, "communication"),
            Evidence(name="num_ranks", value=float(len(by_rank)), unit="count"),
        ),
        headroom_speedup=headroom(fraction),
        missing=_missing_beside_phases(measurement),
    )


def find_straggler(measurement: Measurement) -> Finding | None:
    """STRAGGLER: one rank waits least in communication because the others wait for it."""
    ranks = [rank for rank in measurement.ranks if _is_comparable(rank)]
    if len(ranks) < 2:
        return None
    waits = _communication(ranks)
    late = ranks[waits.index(min(waits))]
    others = [rank for rank in ranks if rank is not late]
    fraction = median(_communication(others)) - min(waits)
    severity = severity_of(fraction)
    if severity is None:
        return None
    cause, excess = _largest_excess(late, others)
    return Finding(
        kind=BottleneckKind.STRAGGLER,
        cause=cause if excess >= MIN_EXPLAINED * fraction else None,
        severity=severity,
        evidence=(
            Evidence(name="wait", value=fraction, unit="fraction"),
            Evidence(name="late_rank", value=float(late.rank), unit="count"),
            Evidence(name=f"{cause}_excess", value=excess, unit="fraction"),
        ),
        headroom_speedup=headroom(fraction),
        missing=_missing_beside_phases(measurement),
    )


def _is_comparable(rank: RankSummary) -> bool:
    """One rank of several, whose communication was observed over enough steps."""
    num_steady = rank.step_time_s.n if rank.step_time_s else 0
    is_one_of_many = rank.world_size > 1 and fraction_of(rank, "communication") is not None
    return is_one_of_many and num_steady >= MIN_STEADY_STEPS


def _communication(ranks: Iterable[RankSummary]) -> list[float]:
    """The communication fractions of the ranks that have one."""
    found = (fraction_of(rank, "communication") for rank in ranks)
    return [fraction for fraction in found if fraction is not None]


def _largest_excess(late: RankSummary, others: list[RankSummary]) -> tuple[str, float]:
    """The phase in which the late rank spends most beyond the others' median, and how much."""
    excess = {
        name: (fraction_of(late, name) or 0.0) - median(fraction_of(r, name) or 0.0 for r in others)
        for name in PHASES
        if name != "communication"
    }
    name = max(excess, key=lambda phase: excess[phase])
    return name, excess[name]


def find_contention(measurement: Measurement) -> Finding | None:
    """CONTENDED: other programs took cores; above info only if the job could have used them."""
    host = measurement.host
    fraction = host.others_cores / host.num_cores if host else 0.0
    severity = severity_of(fraction)
    if host is None or severity is None:
        return None
    return Finding(
        kind=BottleneckKind.CONTENDED,
        cause="neighbor",
        severity=severity if _is_full(host) else Severity.INFO,
        evidence=(
            Evidence(name="others", value=fraction, unit="fraction"),
            Evidence(name="others_cores", value=host.others_cores, unit="cores"),
            Evidence(name="job_cores", value=host.job_cores, unit="cores"),
            Evidence(name="num_cores", value=float(host.num_cores), unit="count"),
            Evidence(name="num_samples", value=float(host.num_samples), unit="count"),
        ),
    )


def _is_full(host: HostLoad) -> bool:
    return host.num_cores - host.job_cores - host.others_cores < MIN_IDLE_CORES


def find_compute(measurement: Measurement) -> Finding | None:
    """COMPUTE_BOUND: the arithmetic fills the step; on a device by the device's clock only."""
    steady = measurement.steady
    if not is_on_device(measurement):
        fraction = sum_fractions(measurement, COMPUTE_PHASES)
    else:
        device_s = compute_device_s(measurement)
        if device_s is None or steady is None or steady.step_time_s is None:
            return None
        fraction = device_s / steady.step_time_s.median
    if fraction < 1 - INFO_FRACTION:
        return None
    return Finding(
        kind=BottleneckKind.COMPUTE_BOUND,
        cause=None,
        severity=Severity.INFO,
        evidence=(Evidence(name="compute", value=fraction, unit="fraction"),),
        missing=find_missing_signals(measurement),
    )


def find_no_steps(measurement: Measurement) -> Finding | None:
    """INCONCLUSIVE: no step was seen, or too few are left after warmup."""
    num_steady = measurement.steady.num_steps if measurement.steady else 0
    if num_steady >= MIN_STEADY_STEPS:
        return None
    return Finding(
        kind=BottleneckKind.INCONCLUSIVE,
        cause="too_few_steps" if measurement.num_steps else "no_steps",
        severity=Severity.WARNING,
        evidence=(
            Evidence(name="num_steps", value=float(measurement.num_steps), unit="count"),
            Evidence(name="num_steady_steps", value=float(num_steady), unit="count"),
            Evidence(name="min_steady_steps", value=float(MIN_STEADY_STEPS), unit="count"),
        ),
    )


def find_noise(measurement: Measurement) -> Finding | None:
    """INCONCLUSIVE: step times scatter too much, in wall and in CPU time."""
    steady = measurement.steady
    times = (steady.step_time_s, steady.step_cpu_s) if steady else ()
    widths = [(q.high - q.low) / 2 / q.median for q in times if q is not None and q.median > 0]
    # Steps of several kinds widen the interval for a good reason.
    if (measurement.period or 1) > 1 or not widths or min(widths) <= MAX_HALF_WIDTH:
        return None
    names = ("step_time_half_width", "step_cpu_half_width")
    return Finding(
        kind=BottleneckKind.INCONCLUSIVE,
        cause="noise",
        severity=Severity.WARNING,
        evidence=tuple(
            Evidence(name=name, value=width, unit="fraction")
            for name, width in zip(names, widths, strict=False)
        ),
        missing=find_missing_signals(measurement),
    )


def find_unattributed(measurement: Measurement) -> Finding | None:
    """INCONCLUSIVE: most of what could be gained is in code that no marker explains."""
    fraction = fraction_of(measurement, "other")
    if fraction is None or fraction < CRITICAL_FRACTION:
        return None
    return Finding(
        kind=BottleneckKind.INCONCLUSIVE,
        cause="unattributed_time",
        severity=Severity.WARNING,
        evidence=phase_evidence(measurement, "other"),
        headroom_speedup=headroom(fraction),
        missing=find_missing_signals(measurement),
    )


def _missing_beside_phases(measurement: Measurement, *more: str) -> tuple[str, ...]:
    """What would have sharpened a finding on phases."""
    contention = find_contention(measurement)
    is_contended = contention is not None and contention.severity is not Severity.INFO
    host = ("host_load",) if measurement.host is None else ()
    return (*more, *host, *(("quiet_machine",) if is_contended else ()))
