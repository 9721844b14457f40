"""Ailments of several ranks: what the exchange costs all, and the rank that others wait for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from steptime.core.stats import median
from steptime.diagnose.ailments.ailment import Ailment, Asked, by_cpu_time, without
from steptime.diagnose.ailments.contention import missing_beside_phases
from steptime.diagnose.ailments.own_share import own_excess, own_exchange
from steptime.diagnose.ailments.scale import (
    MIN_EXPLAINED,
    MIN_STEADY_STEPS,
    SCALE,
    severity_of,
)
from steptime.diagnose.ailments.signals import (
    count,
    fraction_of,
    make_finding,
    phase_evidence,
    share,
    site_of,
)
from steptime.diagnose.values.finding import BottleneckKind, Finding
from steptime.measure.values.measurement import PHASES, Measurement, RankSummary


def find_communication(measurement: Measurement) -> Finding | None:
    """COMMUNICATION_BOUND: communication costs even the last rank to arrive much time."""
    by_rank = _communication(measurement.ranks)
    severity = severity_of(min(by_rank, default=None))
    if severity is None:
        return None
    fraction = min(by_rank)
    found = make_finding(
        COLLECTIVES,
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
    can_defer = any(map(_may_defer, measurement.ranks))
    return replace(found, names={"less": "deferred_exchange" if can_defer else "larger_batches"})


def _may_defer(rank: RankSummary) -> bool:
    """Return whether exchanges may be left out: some are not those of an update's last backward."""
    told = rank.num_backwards if rank.num_exchanges is None else rank.num_exchanges
    return min(told, rank.num_backwards) > rank.num_optimizer_updates


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
    cause = phase if excess >= MIN_EXPLAINED.value * fraction else None
    found = make_finding(
        LATE_RANK,
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
    return replace(found, cause=cause)


def _is_comparable(rank: RankSummary) -> bool:
    """Return whether it is one of several ranks, with communication observed over enough steps."""
    num_steady = rank.step_time_s.n if rank.step_time_s else 0
    is_one_of_many = rank.world_size > 1 and fraction_of(rank, "communication") is not None
    return is_one_of_many and num_steady >= MIN_STEADY_STEPS.value


def _communication(ranks: Iterable[RankSummary]) -> list[float]:
    """Return the communication fractions of the ranks that have one."""
    found = (fraction_of(rank, "communication") for rank in ranks)
    return [fraction for fraction in found if fraction is not None]


def _largest_excess(late: RankSummary, others: list[RankSummary]) -> tuple[str, float]:
    """Return the phase in which the late rank exceeds the others' median most, and by how much."""
    excess = {
        name: (fraction_of(late, name) or 0.0)
        - median([fraction_of(r, name) or 0.0 for r in others])
        for name in PHASES
        if name != "communication"
    }
    name = max(excess, key=lambda phase: excess[phase])
    return name, excess[name]


COLLECTIVES = Ailment(
    kind=BottleneckKind.COMMUNICATION_BOUND,
    cause="collectives",
    what="all ranks pay for the exchange of gradients",
    needs="`communication`",
    rule=find_communication,
    asked=Asked.ENOUGH_STEPS,
    thresholds=SCALE,
    sentence="even the last rank to arrive spends {least_communication} of a step in the exchange.",
    explanation="It is the exchange of gradients itself, not a wait for a late rank.",
    removal=without("the exchange"),
    remedy="Exchange less often, {less}, or exchange fewer bytes.",
    levers=("ddp_no_sync", "ddp_options", "ddp_bf16", "nccl_settings"),
    when_contended=by_cpu_time(
        "A wait for a rank that lost its core uses no CPU time, and the exchange itself does; "
        "so its share of the CPU time of each rank counts.",
        own_exchange,
    ),
)
LATE_RANK = Ailment(
    kind=BottleneckKind.STRAGGLER,
    cause=None,  # a finding has the phase in which the rank loses its time
    what="one rank is late, and the others wait for it; the cause is the phase in which it loses "
    "the time",
    needs="`communication` of each rank",
    rule=find_straggler,
    asked=Asked.ENOUGH_STEPS,
    thresholds=(*SCALE, MIN_EXPLAINED, MIN_STEADY_STEPS),
    sentence="the other ranks wait for rank {late_rank} for {wait} of a step.",
    explanation="Rank {late_rank} loses its time in {cause}: it spends {excess} of its step more "
    "there than the others.",
    removal=without("the wait"),
    remedy="See what rank {late_rank} does there that the others do not (a hook, another branch, "
    "larger batches), and whether its machine is slower.",
    when_contended=by_cpu_time(
        "Any rank may be late because it lost its core; so the late one must have more to do in "
        "its phase even without what others may have taken.",
        own_excess,
    ),
)
AILMENTS = (COLLECTIVES, LATE_RANK)
