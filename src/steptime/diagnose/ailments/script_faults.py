"""Rules on the script itself: what its source, its switches and its compiled functions show."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from steptime.diagnose.ailments.signals import count
from steptime.diagnose.values.finding import Finding, Severity
from steptime.measure.values.measurement import Measurement

SWITCHES = {
    "anomaly_mode": Severity.WARNING,
    "launch_blocking": Severity.WARNING,
    "profiler": Severity.WARNING,
    "tracing": Severity.WARNING,
    "malloc_debug": Severity.WARNING,
    "deterministic": Severity.INFO,
    "distributed_debug": Severity.INFO,
}
"""What slows down each operator is a warning; the last two are choices one may have made."""

SUSPICIONS = ("accumulation_loss", "accumulation_zeroed")


def find_switch(measurement: Measurement, *, name: str) -> Finding | None:
    """No bottleneck by itself: a debug switch was on while the training ran."""
    switch = next((switch for switch in measurement.switches if switch.name == name), None)
    if switch is None:
        return None
    severity = SWITCHES[name]
    return Finding(kind=None, cause=name, severity=severity, evidence=(), where=switch.where)


def find_suspicion(measurement: Measurement, *, code: str) -> Finding | None:
    """No bottleneck: the training may not do what was meant."""
    found = next((item for item in measurement.suspicions if item.code == code), None)
    num_updates = measurement.num_optimizer_updates
    if found is None or num_updates == 0 or measurement.num_backwards <= num_updates:
        return None
    return Finding(
        kind=None,
        cause=code,
        severity=Severity.WARNING,
        evidence=(count("backwards_per_update", measurement.num_backwards / num_updates),),
        where=found.where,
        where_text=found.text,
    )


def find_graph_breaks(measurement: Measurement) -> Finding | None:
    """No measured bottleneck: torch.compile broke a graph at lines of the user's code."""
    compilation = measurement.compilation
    breaks = [event for event in compilation.breaks if event.where] if compilation else []
    if not breaks:
        return None
    worst = max(breaks, key=lambda event: event.count)
    return Finding(
        kind=None,
        cause="graph_breaks",
        severity=Severity.WARNING,
        evidence=(count("num_graph_breaks", sum(event.count for event in breaks)),),
        where=worst.where,
        where_text=worst.reason,
    )


RULES: tuple[Callable[[Measurement], Finding | None], ...] = (
    *(partial(find_suspicion, code=code) for code in SUSPICIONS),
    *(partial(find_switch, name=name) for name in SWITCHES),
    find_graph_breaks,
)
"""All rules of this module; they need no steady window."""
