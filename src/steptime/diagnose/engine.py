"""The Diagnosis of a run: the third value of the chain.

In: a `Measurement`. Out: a `Diagnosis`. The rules are a visible tuple; the order in which one of
their findings becomes the primary kind stands in docs/explanation/diagnosis.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from steptime.core.types import (
    SCHEMA,
    BottleneckKind,
    Diagnosis,
    Finding,
    Measurement,
    Severity,
)
from steptime.diagnose.rules import (
    find_communication,
    find_compute,
    find_contention,
    find_input_wait,
    find_no_steps,
    find_noise,
    find_straggler,
    find_unattributed,
    find_worker_startup,
)
from steptime.diagnose.signals import find_missing_signals

Rule = Callable[[Measurement], Finding | None]

RULES: tuple[Rule, ...] = (
    find_input_wait,
    find_worker_startup,
    find_communication,
    find_straggler,
    find_contention,
    find_compute,
)
"""All are asked, if there are enough steps."""

DOUBTS: tuple[Rule, ...] = (find_noise, find_unattributed)
"""Asked in this order when no rule gave a warning; the first that fires is the verdict."""

PHASE_KINDS = (
    BottleneckKind.INPUT_BOUND,
    BottleneckKind.COMMUNICATION_BOUND,
    BottleneckKind.STRAGGLER,
)
"""Kinds with a headroom of their own; the largest becomes primary."""

_SEVERITIES = (Severity.CRITICAL, Severity.WARNING, Severity.INFO)


def diagnose(measurement: Measurement) -> Diagnosis:
    """What holds the steps of a run back."""
    too_few = find_no_steps(measurement)
    if too_few is not None:
        return _conclude(measurement, [too_few], too_few)
    findings = [f for f in (rule(measurement) for rule in RULES) if f is not None]
    primary = choose_primary(findings)
    if primary is None:
        primary = _doubt(measurement) or _settle(measurement, findings)
    return _conclude(measurement, findings, primary)


def choose_primary(findings: Sequence[Finding]) -> Finding | None:
    """The finding at warning or above that names the bottleneck: on phases first."""
    serious = [finding for finding in findings if finding.severity is not Severity.INFO]
    on_phases = [finding for finding in serious if finding.kind in PHASE_KINDS]
    if on_phases:
        return max(on_phases, key=lambda finding: finding.headroom_speedup or float("inf"))
    return serious[0] if serious else None


def _doubt(measurement: Measurement) -> Finding | None:
    doubts = (rule(measurement) for rule in DOUBTS)
    return next((finding for finding in doubts if finding is not None), None)


def _settle(measurement: Measurement, findings: Sequence[Finding]) -> Finding:
    """COMPUTE_BOUND if that was found, else BALANCED with what was missing."""
    compute = (f for f in findings if f.kind is BottleneckKind.COMPUTE_BOUND)
    balanced = Finding(
        kind=BottleneckKind.BALANCED,
        cause=None,
        severity=Severity.INFO,
        evidence=(),
        missing=find_missing_signals(measurement),
    )
    return next(compute, balanced)


def _conclude(measurement: Measurement, findings: Sequence[Finding], primary: Finding) -> Diagnosis:
    """The diagnosis with its findings, most severe first, the primary one first among equals."""
    others = [finding for finding in findings if finding is not primary]
    ordered = sorted(
        (primary, *others),
        key=lambda f: (_SEVERITIES.index(f.severity), f is not primary, -(f.headroom_speedup or 0)),
    )
    assert primary.kind is not None  # each rule that may be primary names a kind
    return Diagnosis(
        schema=SCHEMA,
        run_id=measurement.run_id,
        kind=primary.kind,
        findings=tuple(ordered),
    )
