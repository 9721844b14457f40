"""What the waterfall adds to a diagnosis: which roof holds the arithmetic, or that none does.

In: findings by the phases, and a `Waterfall`. Out: findings. Phases tell that the model fills a
step; the parts of the waterfall tell what fills the model. Without measured ceilings, or with
too much unexplained, nothing is added and nothing changes.
"""

from __future__ import annotations

from dataclasses import replace

from steptime.core.evidence import Evidence
from steptime.diagnose.ailments.signals import headroom, make_finding, severity_of, share, site_of
from steptime.diagnose.values.finding import BottleneckKind, Finding, Severity
from steptime.diagnose.values.reach_values import Waterfall
from steptime.measure.values.measurement import Measurement

ARITHMETIC = ("arithmetic", "ceiling", "precision", "threads", "recomputation", "shape")
MEMORY = ("bandwidth", "slow_operators")
HOST = ("launch", "script")
_OPEN = (BottleneckKind.COMPUTE_BOUND, BottleneckKind.BALANCED)
"""Kinds that say no more than that no phase but the model's is long."""


def is_usable(waterfall: Waterfall | None) -> bool:
    """Whether a picture says enough of the step to judge by it."""
    return waterfall is not None and waterfall.missing is None and waterfall.is_conclusive


def find_bandwidth(measurement: Measurement, waterfall: Waterfall) -> Finding | None:
    """MEMORY_BANDWIDTH_BOUND: operators wait for memory for longer than any arithmetic takes."""
    fraction = waterfall.fraction_of(*MEMORY)
    severity = severity_of(fraction)
    held, arithmetic = waterfall.fraction_of("bandwidth"), waterfall.fraction_of(*ARITHMETIC)
    if severity is None or fraction <= arithmetic or held < fraction / 2:
        return None
    return make_finding(
        BottleneckKind.MEMORY_BANDWIDTH_BOUND,
        None,
        severity=severity,
        evidence=(
            share("bandwidth_bound", fraction),
            share("arithmetic", arithmetic),
            *_largest(waterfall, "bandwidth"),
        ),
        fraction=fraction,
        site=site_of(measurement, "forward"),
    )


def find_overhead(measurement: Measurement, waterfall: Waterfall) -> Finding | None:
    """HOST_BOUND: between operators goes more time than into them."""
    fraction = waterfall.fraction_of("launch")
    severity = severity_of(fraction)
    most = max(waterfall.fraction_of(*ARITHMETIC), waterfall.fraction_of(*MEMORY))
    if severity is None or fraction <= most:
        return None
    return make_finding(
        BottleneckKind.HOST_BOUND,
        "overhead",
        severity=severity,
        evidence=(share("overhead", fraction), share("operators", most)),
        fraction=fraction,
        site=site_of(measurement, "forward"),
    )


def add_roofs(
    findings: list[Finding], measurement: Measurement, waterfall: Waterfall
) -> list[Finding]:
    """The findings with what the roofs say: each more exact, none twice."""
    kinds = {(finding.kind, finding.cause) for finding in findings}
    found = []
    if not any(kind is BottleneckKind.HOST_BOUND for kind, _ in kinds):
        found.append(find_overhead(measurement, waterfall))
    found.append(find_bandwidth(measurement, waterfall))
    new = [one for one in found if one is not None]
    kept = [
        _more_exact(one, waterfall) if one.kind is BottleneckKind.COMPUTE_BOUND else one
        for one in findings
    ]
    if any(one.severity is not Severity.INFO for one in new):  # the same phases, better explained
        kept = [one for one in kept if one.kind is not BottleneckKind.COMPUTE_BOUND]
    return [*kept, *new]


def _more_exact(finding: Finding, waterfall: Waterfall) -> Finding:
    """COMPUTE_BOUND with the shares of a step that arithmetic and memory hold."""
    reached = waterfall.fraction_of("arithmetic", "ceiling")
    named = (
        ("at_ceiling", reached),
        ("arithmetic", waterfall.fraction_of(*ARITHMETIC)),
        ("bandwidth_bound", waterfall.fraction_of(*MEMORY)),
        ("launch", waterfall.fraction_of(*HOST)),
    )
    lost = waterfall.fraction_of("precision", "threads", "recomputation", "shape")
    return replace(
        finding,
        evidence=(*finding.evidence, *(share(name, value) for name, value in named)),
        headroom_speedup=headroom(lost) if lost > 0 else None,
    )


def _largest(waterfall: Waterfall, name: str) -> tuple[Evidence, ...]:
    """The class with most of a part, as a share of the step."""
    part = next((one for one in waterfall.parts if one.name == name and one.classes), None)
    if part is None or not waterfall.step_time_s:
        return ()
    first = next(iter(part.classes))
    return (share(f"in_{first}", part.classes[first] / waterfall.step_time_s),)
