"""The rule on a step time that changed and stayed so, with what changed at the same time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from steptime.core.evidence import Evidence
from steptime.diagnose.ailments.signals import count, seconds, severity_of
from steptime.diagnose.shifts.lasting_shifts import Explained, ShiftCause
from steptime.diagnose.values.finding import Finding, Severity

WORDS: Mapping[str, str] = {
    "throttle": "shift_throttle",
    "device_clock": "shift_device_clock",
    "neighbor": "shift_neighbor",
    "cpu_clock": "shift_cpu_clock",
    "swap": "shift_swap",
    "page_cache": "shift_page_cache",
    "memory": "shift_memory",
    "disk": "shift_disk",
    "input_size": "shift_input_size",
    "phase": "shift_phase",
}
"""The cause of the finding by what explains most; `shift` where nothing was seen to change."""


def find_shift(shifts: Sequence[Explained]) -> Finding | None:
    """No bottleneck of the step as a whole: from some step on it takes longer, or less.

    Told is the worst of them; one that made steps shorter only where there is no other.
    """
    if not shifts:
        return None
    worst = max(shifts, key=lambda one: one.shift.ratio.estimate)
    shift = worst.shift
    lost = 1 - 1 / shift.ratio.estimate
    first = worst.causes[0] if worst.causes else None
    return Finding(
        kind=None,
        cause="shift" if first is None else WORDS[_kind_of(first)],
        severity=severity_of(lost) or Severity.INFO,
        evidence=(
            count("shift_step", shift.index),
            seconds("shift_before", shift.before_s),
            seconds("shift_after", shift.after_s),
            Evidence(name="shift_ratio", value=shift.ratio.estimate, unit="x"),
            Evidence(name="shift_low", value=shift.ratio.low, unit="x"),
            Evidence(name="shift_high", value=shift.ratio.high, unit="x"),
            count("shift_rank", shift.rank),
            *(item for cause in worst.causes for item in _evidence(cause)),
        ),
    )


def _kind_of(cause: ShiftCause) -> str:
    return cause.name.partition(":")[0]


def _evidence(cause: ShiftCause) -> tuple[Evidence, ...]:
    """Before and after: `neighbor_before`, or `phase_forward_before` for a phase."""
    name = cause.name.replace(":", "_")
    return (
        Evidence(name=f"{name}_before", value=cause.before, unit=cause.unit),
        Evidence(name=f"{name}_after", value=cause.after, unit=cause.unit),
    )
