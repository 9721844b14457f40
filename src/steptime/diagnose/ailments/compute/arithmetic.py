"""Ailments that measured ceilings show: the waterfall says what the arithmetic consists of.

In: a Measurement, and a `Waterfall` with the findings by the phases. Out: findings. Phases show
that the model fills a step; the parts of the waterfall show what fills the model. Without measured
ceilings, or with too much unexplained, the waterfall adds and changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from steptime.core.evidence import Evidence
from steptime.diagnose.ailments.ailment import Ailment, Asked, Removal, by_cpu_time
from steptime.diagnose.ailments.compute.computing import MIN_LOST_FRACTION, SAME_PHASES
from steptime.diagnose.ailments.scale import SCALE, headroom, severity_of
from steptime.diagnose.ailments.signals import make_finding, share, site_of
from steptime.diagnose.values.finding import BottleneckKind, Finding, Severity
from steptime.diagnose.values.reach_values import Waterfall
from steptime.measure.values.measurement import Measurement

ARITHMETIC = ("arithmetic", "ceiling", "precision", "threads", "recomputation", "shape")
MEMORY = ("bandwidth", "slow_operators")
HOST = ("launch", "script")
LOST = ("precision", "threads", "recomputation", "shape")
"""Avoidable parts of the arithmetic: another type, more threads, or other shapes remove them."""


def is_usable(waterfall: Waterfall | None) -> bool:
    """Return whether a waterfall explains enough of the step to judge by it."""
    return waterfall is not None and waterfall.missing is None and waterfall.is_conclusive


def find_bandwidth(measurement: Measurement, waterfall: Waterfall) -> Finding | None:
    """MEMORY_BANDWIDTH_BOUND: operators wait for memory for longer than any arithmetic takes."""
    fraction = waterfall.wall_fraction_of(*MEMORY)
    severity = severity_of(fraction)
    held = waterfall.wall_fraction_of("bandwidth")
    arithmetic = waterfall.wall_fraction_of(*ARITHMETIC)
    if severity is None or fraction <= arithmetic or held < fraction / 2:
        return None
    return make_finding(
        BANDWIDTH,
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
    """HOST_BOUND: more time passes between operators than in them."""
    fraction = waterfall.wall_fraction_of("launch")
    severity = severity_of(fraction)
    most = max(waterfall.wall_fraction_of(*ARITHMETIC), waterfall.wall_fraction_of(*MEMORY))
    if severity is None or fraction <= most:
        return None
    return make_finding(
        OVERHEAD,
        severity=severity,
        evidence=(share("overhead", fraction), share("operators", most)),
        fraction=fraction,
        site=site_of(measurement, "forward"),
    )


def add_roofs(
    findings: list[Finding], measurement: Measurement, waterfall: Waterfall
) -> list[Finding]:
    """Return the findings with what the roofs say: each is more exact, and none appears twice."""
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
        kept = without_same_phases(kept)
    return [*kept, *new]


def without_same_phases(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings but COMPUTE_BOUND, where another one says what fills the model."""
    return [
        one
        for one in findings
        if one.kind is not BottleneckKind.COMPUTE_BOUND or one.cause not in SAME_PHASES
    ]


def _more_exact(finding: Finding, waterfall: Waterfall) -> Finding:
    """Return COMPUTE_BOUND with the shares of arithmetic and memory in a step."""
    reached = waterfall.wall_fraction_of("arithmetic", "ceiling")
    named = (
        ("at_ceiling", reached),
        ("arithmetic", waterfall.wall_fraction_of(*ARITHMETIC)),
        ("bandwidth_bound", waterfall.wall_fraction_of(*MEMORY)),
        ("launch", waterfall.wall_fraction_of(*HOST)),
    )
    parts = [(name, waterfall.wall_fraction_of(name)) for name in LOST]
    lost = [(name, value) for name, value in parts if value >= MIN_LOST_FRACTION.value]
    most = math.fsum(min(value, _most_gained(waterfall, name)) for name, value in lost)
    return replace(
        finding,
        evidence=(
            *finding.evidence,
            *(share(name, value) for name, value in (*named, *lost)),
            *_gained(waterfall, [name for name, _ in lost]),
        ),
        headroom_speedup=headroom(most) if most > 0 else None,
        names={**(finding.names or {}), **({"dtype": waterfall.dtype} if waterfall.dtype else {})}
        or None,
    )


def _most_gained(waterfall: Waterfall, name: str) -> float:
    """Return the most that removing the cause of a part gives, as a share of the step."""
    gain, whole_s = waterfall.gain_of(name), waterfall.wall_s or waterfall.step_time_s
    return max(0.0, gain.high_s / whole_s) if gain is not None and whole_s else 1.0


def _gained(waterfall: Waterfall, names: Sequence[str]) -> Iterator[Evidence]:
    """Yield between which shares of the step each part would come back."""
    whole_s = waterfall.wall_s or waterfall.step_time_s
    for name in names:
        gain = waterfall.gain_of(name)
        if gain is not None and whole_s:
            yield share(f"{name}_gain_low", gain.low_s / whole_s)
            yield share(f"{name}_gain_high", gain.high_s / whole_s)


def _largest(waterfall: Waterfall, name: str) -> tuple[Evidence, ...]:
    """Return the class that has most of a part, as a share of the step."""
    part = next((one for one in waterfall.parts if one.name == name and one.classes), None)
    whole_s = waterfall.wall_s or waterfall.step_time_s
    if part is None or not whole_s:
        return ()
    first = next(iter(part.classes))
    return (share(f"in_{first}", part.classes[first] / whole_s),)


BANDWIDTH = Ailment(
    kind=BottleneckKind.MEMORY_BANDWIDTH_BOUND,
    what="operators that wait for memory take more of a step than arithmetic",
    needs="measured ceilings, the count of a step",
    rule=find_bandwidth,
    asked=Asked.APART,
    thresholds=SCALE,
    sentence="operators that wait for memory take {bandwidth_bound} of a step, and arithmetic "
    "takes {arithmetic}.",
    removal=Removal(condition="If no operator had to wait for memory,", parts={}, whole="step"),
    remedy="Let torch.compile fuse operators, or use a shorter type, so that fewer bytes are "
    "moved.",
    levers=(
        *("compile", "fused_attention", "fused_gelu", "autocast"),
        *("process_binding", "sparse_input"),
    ),
    when_contended=by_cpu_time(
        "Operators are timed in the CPU time of their thread; time in which no thread ran is a "
        "part of its own in the waterfall, which lowers this share."
    ),
)
OVERHEAD = Ailment(
    kind=BottleneckKind.HOST_BOUND,
    cause="overhead",
    what="more time passes between operators than in what holds them back",
    needs="measured ceilings, the count of a step",
    rule=find_overhead,
    asked=Asked.APART,
    thresholds=SCALE,
    sentence="{overhead} of a step passes between operators, in Python and in starting them. "
    "Arithmetic and memory each take {operators} at most.",
    removal=Removal(condition="If no time passed between operators,", parts={}, whole="step"),
    remedy="Let torch.compile fuse operators, or make the batch larger.",
    levers=("compile", "fused_optimizer", "fused_gelu", "num_threads", "wait_policy"),
    when_contended=by_cpu_time(
        "Operators are timed in the CPU time of their thread; time in which no thread ran is a "
        "part of its own in the waterfall, which lowers this share."
    ),
)
AILMENTS = (BANDWIDTH, OVERHEAD)
