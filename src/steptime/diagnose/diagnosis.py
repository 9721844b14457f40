"""Makes the Diagnosis of a run, the third value of the chain.

In: a `Measurement`. Out: a `Diagnosis`. The rules are those of the rows in `ailments/`;
docs/explanation/diagnosis.md has the order in which one of their findings becomes the primary kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from steptime.core.schema import SCHEMA
from steptime.diagnose import contended
from steptime.diagnose.ailments import verdicts
from steptime.diagnose.ailments.ailment import Asked, Rule
from steptime.diagnose.ailments.all_ailments import rules_asked
from steptime.diagnose.ailments.compute.arithmetic import add_roofs, is_usable, without_same_phases
from steptime.diagnose.ailments.contention import is_of_machine
from steptime.diagnose.ailments.health import numerical_health
from steptime.diagnose.ailments.memory import memory_limits
from steptime.diagnose.ailments.ranks import desynced, stalled
from steptime.diagnose.ailments.said.library_warnings import without_said_twice
from steptime.diagnose.ailments.script.script_faults import FAILURE
from steptime.diagnose.ailments.script.shifted import find_shift
from steptime.diagnose.ailments.sense import senseless
from steptime.diagnose.ailments.waste.wasted_work import explain_exchange
from steptime.diagnose.shifts.lasting_shifts import find_shifts
from steptime.diagnose.values.finding import (
    BottleneckKind,
    Diagnosis,
    Finding,
    HeldBy,
    Severity,
)
from steptime.diagnose.values.reach_values import Waterfall
from steptime.measure.values.measurement import Measurement

if TYPE_CHECKING:
    from steptime.measure.values.over_time import RunSeries

WITH_HEADROOM = (
    BottleneckKind.INPUT_BOUND,
    BottleneckKind.HOST_BOUND,
    BottleneckKind.COMPUTE_BOUND,
    BottleneckKind.MEMORY_BANDWIDTH_BOUND,
    BottleneckKind.MEMORY_CAPACITY_BOUND,
    BottleneckKind.COMMUNICATION_BOUND,
    BottleneckKind.STRAGGLER,
    BottleneckKind.IMBALANCE,
    BottleneckKind.PADDING,
)
"""Kinds that have a headroom; the one with the largest becomes primary."""

_ENDS = (*stalled.CAUSES, *desynced.CAUSES, FAILURE.cause)
_SEVERITIES = (Severity.CRITICAL, Severity.WARNING, Severity.INFO)


def diagnose(
    measurement: Measurement,
    series: RunSeries | None = None,
    waterfall: Waterfall | None = None,
) -> Diagnosis:
    """Return what holds the steps of a run back, and whether that changed while it ran.

    Args:
        measurement: what was seen of the run.
        series: the same run over time; without it, no search for changes takes place.
        waterfall: the waterfall of the same run; without it, there are no findings on roofs.
    """
    shifts = () if series is None else find_shifts(series)
    shift = find_shift(shifts)
    if shift is not None and _are_left_out(measurement):
        shift = contended.judge_again(shift, measurement)
    diagnosis = _diagnose(measurement, shift, waterfall)
    return replace(diagnosis, shifts=tuple(one.shift for one in shifts))


def _are_left_out(measurement: Measurement) -> bool:
    """Return whether steps beside a busy neighbor do not count."""
    return measurement.steady is not None and measurement.steady.num_beside_neighbor > 0


def _diagnose(
    measurement: Measurement, shift: Finding | None, waterfall: Waterfall | None
) -> Diagnosis:
    findings = _ask(rules_asked(Asked.ALWAYS), measurement) + ([] if shift is None else [shift])
    death = _find_death(findings)
    too_few = verdicts.find_no_steps(measurement)
    if too_few is not None:
        return _conclude(measurement, [*findings, too_few], death or too_few)
    findings += _ask(rules_asked(Asked.ENOUGH_STEPS), measurement)
    findings = explain_exchange(findings)
    if waterfall is not None and is_usable(waterfall):
        findings = add_roofs(findings, measurement, waterfall)
    if contended.is_contended(measurement):
        findings = [contended.judge_again(finding, measurement) for finding in findings]
        primary = (
            _find_death(findings)
            or choose_primary(findings)
            or _beside_neighbor(measurement, findings)
        )
    else:
        primary = death or choose_primary(findings)
    if primary is None:
        primary = _doubt(measurement) or _settle(measurement, findings)
    elif (unnamed := verdicts.find_unattributed(measurement)) and unnamed.cause != primary.cause:
        findings.append(replace(unnamed, severity=Severity.INFO))
    if primary.kind is BottleneckKind.HOST_BOUND:  # the same phases, better explained
        findings = without_same_phases(findings)
    return _conclude(measurement, findings, primary)


def _find_death(findings: Sequence[Finding]) -> Finding | None:
    return next((f for f in findings if f.cause == memory_limits.OUT_OF_MEMORY.cause), None)


def _beside_neighbor(measurement: Measurement, findings: Sequence[Finding]) -> Finding | None:
    """Return what can be said of a contended run without a bottleneck of its own.

    That it is contended is the answer where there is nothing else.
    """
    unnamed = verdicts.find_unattributed(measurement)
    held = None if unnamed is None else contended.judge_again(unnamed, measurement)
    if held is not None and held.held_by is not HeldBy.NOTHING:
        return held
    compute = (f for f in findings if f.kind is BottleneckKind.COMPUTE_BOUND)
    others = (f for f in findings if f.kind is BottleneckKind.CONTENDED)
    sure = (f for f in compute if f.held_by is not HeldBy.NOTHING)
    return next(sure, None) or next(others, None)


def _ask(rules: Sequence[Rule], measurement: Measurement) -> list[Finding]:
    return [f for f in (rule(measurement) for rule in rules) if f is not None]


def choose_primary(findings: Sequence[Finding]) -> Finding | None:
    """Return the finding at warning or above that names the bottleneck, by its headroom."""
    serious = [f for f in findings if f.severity is not Severity.INFO]
    removable = [finding for finding in serious if finding.kind in WITH_HEADROOM]
    return max(removable, key=_headroom, default=None)


def _headroom(finding: Finding) -> float:
    """Return a headroom for ordering; without a number, all of a step would go: it comes first."""
    if finding.headroom_speedup is not None:
        return finding.headroom_speedup
    return float("inf") if finding.severity is Severity.CRITICAL else 1.0


def _doubt(measurement: Measurement) -> Finding | None:
    doubts = (rule(measurement) for rule in rules_asked(Asked.DOUBT))
    return next((finding for finding in doubts if finding is not None), None)


def _settle(measurement: Measurement, findings: Sequence[Finding]) -> Finding:
    """Return COMPUTE_BOUND if it was found, else BALANCED with what was missing."""
    compute = (f for f in findings if f.kind is BottleneckKind.COMPUTE_BOUND)
    return next(compute, verdicts.find_nothing(measurement))


def _conclude(measurement: Measurement, findings: Sequence[Finding], primary: Finding) -> Diagnosis:
    """Return the diagnosis, with the most severe findings first, and the primary before equals."""
    others = [f for f in without_said_twice((*findings, primary)) if f is not primary]

    def order(finding: Finding) -> tuple[int, bool, bool, bool, bool, float]:
        # What others do to the run comes after what it does to itself.
        is_others = is_of_machine(finding)
        # A slow run costs hours, one that learns something else weeks.
        is_wrong = finding.cause in senseless.WRONG and finding.severity is not Severity.INFO
        rank = 0 if is_wrong else _SEVERITIES.index(finding.severity)
        # Faster steps do not help a run that stood still or failed, nor one of lost numbers.
        is_sound = finding.cause not in (*numerical_health.CAUSES_FIRST, *senseless.CAUSES)
        goes_on = finding.cause not in _ENDS
        return (
            rank,
            is_sound,
            goes_on,
            is_others,
            finding is not primary,
            -(finding.headroom_speedup or 0),
        )

    ordered = sorted((primary, *others), key=order)
    assert primary.kind is not None  # each rule that may be primary names a kind
    return Diagnosis(
        schema=SCHEMA,
        run_id=measurement.run_id,
        kind=primary.kind,
        findings=tuple(ordered),
    )
