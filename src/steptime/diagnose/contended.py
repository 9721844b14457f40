"""Judges the findings of a run again where other programs kept the cores busy.

In: findings, and the Measurement that they are from. Out: findings that say what holds them. The
row of each says by what (`Ailment.when_contended`). What nothing holds stays as a hint: it is
`info`, has no headroom, and wants a quiet machine.
"""

from __future__ import annotations

from dataclasses import replace

from steptime.diagnose.ailments.all_ailments import ailment_of
from steptime.diagnose.ailments.contention import find_contention, find_starved
from steptime.diagnose.ailments.scale import headroom, severity_of
from steptime.diagnose.ailments.signals import share
from steptime.diagnose.values.finding import BottleneckKind, Finding, HeldBy, Severity
from steptime.measure.values.measurement import Measurement

_FROM_LEAST = (Severity.INFO, Severity.WARNING, Severity.CRITICAL)


def is_contended(measurement: Measurement) -> bool:
    """Return whether others, or a quota, took cores in the steps that count from the run."""
    found = (find_contention(measurement), find_starved(measurement))
    return any(one is not None and one.severity is not Severity.INFO for one in found)


def judge_again(finding: Finding, measurement: Measurement) -> Finding:
    """Return the finding as it holds beside busy neighbors."""
    row = ailment_of(finding)
    if row is None or finding.kind is BottleneckKind.CONTENDED:
        return finding
    rule = row.when_contended
    if rule.held_by is HeldBy.NOTHING:
        return replace(finding, severity=Severity.INFO, held_by=HeldBy.NOTHING)
    if rule.own_share is None:
        return replace(finding, held_by=rule.held_by)
    own = rule.own_share(measurement, finding)
    severity = severity_of(own)
    if own is None or severity is None:
        return _as_hint(finding)
    known = (headroom(own), finding.headroom_speedup)
    return replace(
        finding,
        severity=min(finding.severity, severity, key=_FROM_LEAST.index),
        evidence=(*finding.evidence, share("own_share", own)),
        headroom_speedup=None if None in known else min(filter(None, known)),
        held_by=rule.held_by,
    )


def _as_hint(finding: Finding) -> Finding:
    """Return a finding that other programs may have caused."""
    return replace(
        finding,
        severity=Severity.INFO,
        headroom_speedup=None,
        missing=(*finding.missing, "quiet_machine"),
        held_by=HeldBy.NOTHING,
    )
