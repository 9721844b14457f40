"""Rules on several ranks: what all pay for the exchange, and whom the others wait for."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

from steptime.diagnose.ailments.contention import missing_beside_phases
from steptime.diagnose.ailments.signals import (
    count,
    fraction_of,
    make_finding,
    phase_evidence,
    severity_of,
    share,
    site_of,
)
from steptime.diagnose.ailments.thresholds import MIN_EXPLAINED, MIN_STEADY_STEPS
from steptime.diagnose.values.finding import BottleneckKind, Finding
from steptime.measure.values.measurement import PHASES, Measurement, RankSummary


def find_communication(measurement: Measurement) -> Finding | None:
    """COMMUNICATION_BOUND: the part of communication that even the last rank to arrive pays."""
    by_rank = _communication(measurement.ranks)
    severity = severity_of(min(by_rank, default=None))
    if severity is None:
        return None
    fraction = min(by_rank)
    return make_finding(
        BottleneckKind.COMMUNICATION_BOUND,
        "collectives",
        severity=severity,
        evidence=(
            share("least_communication", fraction),
            *phase_evidence(measurement, "communication"),
            count("num_ranks", len(by_rank)),
        ),
        fraction=fraction,
        site=site_of(measurement, "communication"),
        missing=missing_beside_phases(measurement),
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
    phase, excess = _largest_excess(late, others)
    cause = phase if excess >= MIN_EXPLAINED * fraction else None
    return make_finding(
        BottleneckKind.STRAGGLER,
        cause,
        severity=severity,
        evidence=(
            share("wait", fraction),
            count("late_rank", late.rank),
            share(f"{phase}_excess", excess),
        ),
        fraction=fraction,
        site=site_of(measurement, cause),
        missing=missing_beside_phases(measurement),
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
