"""Ailments of a run that stood still: how long, and which rank the others waited for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from steptime.core.process_end import RunState
from steptime.diagnose.ailments.ailment import Ailment, Asked, by_facts
from steptime.diagnose.ailments.scale import SCALE, severity_of
from steptime.diagnose.ailments.signals import count, make_finding, seconds
from steptime.diagnose.values.finding import Finding, Severity
from steptime.measure.values.measurement import Measurement
from steptime.measure.values.stall import Stall


def find_stall(measurement: Measurement) -> Finding | None:
    """No bottleneck of the step: no step came for ten times the usual time."""
    stalls = relevant_stalls(measurement)
    if not stalls:
        return None
    worst = worst_stall(stalls)
    found = make_finding(
        STALLED_RANK if worst.culprits else STALL,
        severity=_severity(measurement, stalls),
        evidence=(
            seconds("stall_time", stalled_s(worst)),
            seconds("usual_step", worst.usual_step_s),
            count("num_stalls", len(stalls)),
            count("stalled_after", max((one.num_steps for one in worst.ranks), default=0)),
            *(count("culprit_rank", rank) for rank in worst.culprits[:1]),
        ),
    )
    late = [one for one in worst.ranks if one.rank in worst.culprits]
    return replace(
        found, where=next((one.where for one in (*late, *worst.ranks) if one.where), None)
    )


def relevant_stalls(measurement: Measurement) -> tuple[Stall, ...]:
    """Return the stalls; in a run that finished well, an endless one is only the run's end."""
    has_finished = measurement.end.state is RunState.FINISHED
    return tuple(s for s in measurement.stalls if s.duration_s is not None or not has_finished)


def worst_stall(stalls: Sequence[Stall]) -> Stall:
    """Return the stall that never ended, or else the longest.

    Raises:
        ValueError: there are no stalls.
    """
    return max(stalls, key=lambda one: (one.duration_s is None, stalled_s(one)))


def stalled_s(stall: Stall) -> float:
    """Return how long a stall lasted, or had lasted when it was seen [s]."""
    if stall.duration_s is not None:
        return stall.duration_s
    return max(0.0, stall.seen_unix_s - stall.began_unix_s)


def _severity(measurement: Measurement, stalls: Sequence[Stall]) -> Severity:
    """Return critical for a run that never continued; else go by the share of the run lost."""
    if any(stall.duration_s is None for stall in stalls):
        return Severity.CRITICAL
    lost_s, duration_s = math.fsum(map(stalled_s, stalls)), measurement.duration_s
    fraction = None if not duration_s else min(1.0, lost_s / duration_s)
    return severity_of(fraction) or Severity.INFO


STALL = Ailment(
    cause="stall",
    what="the run stood still",
    needs="`stalls`",
    rule=find_stall,
    asked=Asked.ALWAYS,
    thresholds=SCALE,
    title="stalled",
    sentence="no step came for {stall_time}, though one usually takes {usual_step}. The run stood "
    "still after step {stalled_after}.",
    remedy="Find out what that line waits for, and mend it.",
    when_contended=by_facts(
        "A fair scheduler keeps no thread from its core for seconds; the stacks show what it waits "
        "for."
    ),
)
STALLED_RANK = Ailment(
    cause="stalled_rank",
    what="the run stood still because the other ranks waited for one",
    needs="`stalls` with a culprit",
    rule=find_stall,
    asked=Asked.ALWAYS,
    thresholds=SCALE,
    title="stalled",
    sentence="no step came for {stall_time}, though one usually takes {usual_step}. After step "
    "{stalled_after} the other ranks waited for rank {culprit_rank}.",
    remedy="Find out what rank {culprit_rank} does at that line, and mend it.",
    when_contended=by_facts(
        "A fair scheduler keeps no thread from its core for seconds; the stacks show what it waits "
        "for."
    ),
)
AILMENTS = (STALL, STALLED_RANK)
CAUSES = tuple(row.cause for row in AILMENTS)
