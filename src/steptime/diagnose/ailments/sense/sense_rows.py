"""What the ailments of a training that learns something else have in common."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from steptime.core.evidence import Evidence
from steptime.diagnose.ailments.ailment import Ailment, Asked, Rule, by_facts
from steptime.diagnose.ailments.scale import Threshold
from steptime.diagnose.ailments.signals import make_finding, site_of
from steptime.diagnose.values.finding import Finding, Severity
from steptime.measure.values.measurement import Measurement
from steptime.measure.values.model.sense_values import Sense, SenseLine
from steptime.measure.values.observations import place_text


def sense_of(measurement: Measurement) -> Sense:
    """Return what the sense checks saw; nothing where they did not look."""
    return measurement.sense or Sense()


def at_phase(
    row: Ailment, evidence: Iterable[Evidence], measurement: Measurement, phase: str
) -> Finding:
    """Return a finding at the line of a phase."""
    site = site_of(measurement, phase)
    found = make_finding(row, severity=Severity.WARNING, evidence=(), site=site)
    return replace(found, evidence=tuple(evidence))


def placed(
    row: Ailment,
    evidence: Iterable[Evidence],
    place: SenseLine | None,
    names: Mapping[str, str] | None = None,
) -> Finding:
    """Return a finding at a line that the guest noted; without one where it knows none."""
    found = make_finding(row, severity=Severity.WARNING, evidence=evidence)
    if place is not None:
        found = replace(found, where=place_text(place.file, place.line), where_text=place.text)
    return replace(found, names=names)


def sense_row(
    cause: str,
    rule: Rule,
    what: str,
    sentence: str,
    remedy: str,
    *,
    title: str,
    needs: str,
    thresholds: tuple[Threshold, ...] = (),
) -> Ailment:
    """Return a row of this family, all of which hold whoever else is there."""
    return Ailment(
        cause=cause,
        what=what,
        needs=needs,
        rule=rule,
        asked=Asked.ALWAYS,
        thresholds=thresholds,
        title=title,
        sentence=sentence,
        remedy=remedy,
        when_contended=by_facts("Other programs do not change what the script computes."),
    )
