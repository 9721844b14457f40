"""Gathers every ailment, the rules that find them, and the row behind a finding."""

from __future__ import annotations

from steptime.diagnose.ailments import contention, verdicts
from steptime.diagnose.ailments.ailment import Ailment, Asked, Rule
from steptime.diagnose.ailments.compute import (
    arithmetic,
    attention,
    computing,
    convolutions,
    unused_graphs,
    zero_products,
)
from steptime.diagnose.ailments.health import idle_weights, numerical_health, overfitting
from steptime.diagnose.ailments.host import beside_steps, host, own_python
from steptime.diagnose.ailments.input import experience, loader_workers, waiting
from steptime.diagnose.ailments.memory import memory_limits, memory_peaks
from steptime.diagnose.ailments.ranks import desynced, ranks, stalled
from steptime.diagnose.ailments.said import library_warnings
from steptime.diagnose.ailments.script import script_faults, shifted
from steptime.diagnose.ailments.sense import senseless
from steptime.diagnose.ailments.waste import (
    dense_updates,
    needless_work,
    repeated_work,
    wasted_work,
)
from steptime.diagnose.values.finding import BottleneckKind, Finding

AILMENTS: tuple[Ailment, ...] = (
    *waiting.AILMENTS,
    *loader_workers.AILMENTS,
    *experience.AILMENTS,
    *host.AILMENTS,
    *own_python.AILMENTS,
    *ranks.AILMENTS,
    *memory_limits.AILMENTS,
    *memory_peaks.AILMENTS,
    *contention.AILMENTS,
    *computing.AILMENTS,
    *arithmetic.AILMENTS,
    *attention.AILMENTS,
    *convolutions.AILMENTS,
    *wasted_work.AILMENTS,
    *needless_work.AILMENTS,
    *repeated_work.AILMENTS,
    *dense_updates.AILMENTS,
    *unused_graphs.AILMENTS,
    *zero_products.AILMENTS,
    *senseless.AILMENTS,
    *numerical_health.AILMENTS,
    *idle_weights.AILMENTS,
    *overfitting.AILMENTS,
    *beside_steps.AILMENTS,
    *stalled.AILMENTS,
    *desynced.AILMENTS,
    *shifted.AILMENTS,
    *script_faults.AILMENTS,
    *library_warnings.AILMENTS,
    *verdicts.AILMENTS,
)
"""The order is that of the documentation, and the order in which rules are asked."""

FAULTS = (
    *numerical_health.CAUSES_FIRST,
    *senseless.CAUSES,
    *stalled.CAUSES,
    *desynced.CAUSES,
    script_faults.FAILURE.cause,
    memory_limits.OUT_OF_MEMORY.cause,
)
"""Causes that a report names before the state of the machine: the run failed, or stood still."""

_BY_WORD = {(row.kind, row.cause): row for row in AILMENTS}


def rules_asked(asked: Asked) -> tuple[Rule, ...]:
    """Return the rules for one occasion, each once."""
    return tuple(dict.fromkeys(row.rule for row in AILMENTS if row.asked is asked))


def ailment_of(finding: Finding) -> Ailment | None:
    """Return the row of a finding; None for one that another version of Steptime made."""
    # A straggler's cause is the phase in which it loses its time.
    is_late = finding.kind is BottleneckKind.STRAGGLER
    return ailment_named(finding.kind, None if is_late else finding.cause)


def ailment_named(kind: BottleneckKind | None, cause: str | None) -> Ailment | None:
    """Return the row with this kind and cause; None if there is none."""
    return _BY_WORD.get((kind, cause))
