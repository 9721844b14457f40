"""Ailments of a step time that changed and stayed so, by what changed at the same time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from steptime.core.evidence import Evidence
from steptime.diagnose.ailments.ailment import (
    Ailment,
    Asked,
    WhenContended,
    by_facts,
    by_nothing,
    by_same_load,
)
from steptime.diagnose.ailments.scale import INFO_FRACTION, MIN_EXPLAINED, severity_of
from steptime.diagnose.ailments.signals import count, make_finding, seconds
from steptime.diagnose.shifts.lasting_shifts import SHIFT_THRESHOLDS, Explained, ShiftCause
from steptime.diagnose.values.finding import Finding, Severity


def find_shift(shifts: Sequence[Explained]) -> Finding | None:
    """No bottleneck of the step as a whole: from some step on it takes longer, or less.

    It reports the worst shift, one that others did not make before all others, and a shift to
    shorter steps only where there is no other.
    """
    if not shifts:
        return None
    worst = max(shifts, key=lambda one: (_is_own(one), one.shift.ratio.estimate))
    shift = worst.shift
    lost = 1 - 1 / shift.ratio.estimate
    first = worst.causes[0].name if worst.causes else ""
    what, _, phase = first.partition(":")
    found = make_finding(
        BY_CHANGE[what],
        # What others did is said by CONTENDED, and nobody can mend it in the script.
        severity=Severity.INFO if what in _OF_OTHERS else severity_of(lost) or Severity.INFO,
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
    return replace(found, names={"phase": phase} if phase else None)


def _is_own(one: Explained) -> bool:
    """Return whether steps became longer, and not because others took the cores."""
    by_others = bool(one.causes) and one.causes[0].name in _OF_OTHERS
    return one.shift.ratio.estimate > 1 and not by_others


_OF_OTHERS = ("neighbor", "core_wait")
"""Changes that other programs made."""


def _evidence(cause: ShiftCause) -> tuple[Evidence, ...]:
    """Return values before and after: `neighbor_before`, or `phase_forward_before` for a phase."""
    name = cause.name.replace(":", "_")
    return (
        Evidence(name=f"{name}_before", value=cause.before, unit=cause.unit),
        Evidence(name=f"{name}_after", value=cause.after, unit=cause.unit),
    )


def _row(
    cause: str,
    *,
    what: str,
    needs: str,
    explanation: str | None = None,
    remedy: str,
    when_contended: WhenContended,
) -> Ailment:
    """Return the row of a change of the step time, by what changed with it."""
    return Ailment(
        cause=cause,
        what=what,
        needs=needs,
        rule=find_shift,
        asked=Asked.APART,
        thresholds=(INFO_FRACTION, MIN_EXPLAINED, *SHIFT_THRESHOLDS),
        title="changed",
        sentence="from step {shift_step} on a step takes {shift_after}; before, it took "
        "{shift_before}. That is {shift_ratio} as long (95 % interval {shift_low} to "
        "{shift_high}).",
        explanation=explanation,
        remedy=remedy,
        when_contended=when_contended,
    )


_MORE_MEMORY = "Give the run less to hold, or the machine more memory."
_BOTH_SIDES = by_same_load(
    "The load was looked at: where others took more cores than before, the change is theirs."
)
_SEEN = by_facts("What changed was itself seen, before and after.")
_COOLING = "Check the device's cooling and its power limit."

BY_CHANGE: Mapping[str, Ailment] = {
    "": _row(
        "shift",
        what="the step time changed and stayed so, and nothing else was seen to change",
        needs="step times over the run",
        remedy="Find out what changed on the machine or in the script then.",
        when_contended=_BOTH_SIDES,
    ),
    "throttle": _row(
        "shift_throttle",
        what="the same, and the device has held its clock down since then",
        needs="devices over the run",
        explanation="Since then the device has held its clock down, because of power, heat or a "
        "setting.",
        remedy=_COOLING,
        when_contended=_SEEN,
    ),
    "device_clock": _row(
        "shift_device_clock",
        what="the same, and the device's clock fell",
        needs="devices over the run",
        explanation="The device's clock is {device_clock_after} what it was.",
        remedy=_COOLING,
        when_contended=_SEEN,
    ),
    "neighbor": _row(
        "shift_neighbor",
        what="the same, and other programs have taken more cores since then",
        needs="load of the machine over the run",
        explanation="Since then other programs have kept {neighbor_after} cores busy; before, they "
        "kept {neighbor_before} busy.",
        remedy="Train when the machine is quiet.",
        when_contended=by_nothing("It is the neighbor itself."),
    ),
    "core_wait": _row(
        "shift_core_wait",
        what="the same, and the run waited longer for a core, though others took no more cores",
        needs="load of the machine over the run; the kernel's count of waits for a core",
        explanation="Since then a thread of the run has waited for a core for {core_wait_after} of "
        "the time; before, it waited for {core_wait_before} of it.",
        remedy="Train when the machine is quiet.",
        when_contended=by_nothing("It is the neighbor itself."),
    ),
    "cpu_clock": _row(
        "shift_cpu_clock",
        what="the same, and the clock of the cores fell",
        needs="clocks over the run",
        explanation="The clock of the cores is {cpu_clock_after} what it was.",
        remedy="Check the cooling and the governor of the machine.",
        when_contended=_SEEN,
    ),
    "swap": _row(
        "shift_swap",
        what="the same, and memory was read back from swap",
        needs="swap over the run",
        explanation="The machine has since read {swap_after} per second back from swap; before, "
        "it read {swap_before}.",
        remedy=_MORE_MEMORY,
        when_contended=_SEEN,
    ),
    "page_cache": _row(
        "shift_page_cache",
        what="the same, and data came from storage while the page cache shrank",
        needs="reads and page cache over the run",
        explanation="Since then the run has read its data from storage: the page cache holds "
        "{page_cache_after}; before, it held {page_cache_before}.",
        remedy="Leave more memory to the page cache, or read fewer bytes.",
        when_contended=_SEEN,
    ),
    "memory": _row(
        "shift_memory",
        what="the same, and little memory was left",
        needs="memory over the run",
        explanation="Since then {memory_after} of memory have been free; before, it was "
        "{memory_before}.",
        remedy="Find out what fills the memory.",
        when_contended=_SEEN,
    ),
    "disk": _row(
        "shift_disk",
        what="the same, and more was read from storage",
        needs="reads over the run",
        explanation="The run reads {disk_after} per second from storage; before, it read "
        "{disk_before}.",
        remedy="Find out what is read again (a cache that is full, or another file).",
        when_contended=_SEEN,
    ),
    "input_size": _row(
        "shift_input_size",
        what="the same, and a step had more arithmetic to do",
        needs="phases, CPU time and sizes of inputs over the run",
        explanation="Since then a step has {input_size_after} the work, because of larger inputs "
        "or another stage of the training.",
        remedy="Check whether the inputs were meant to grow then.",
        when_contended=_BOTH_SIDES,
    ),
    "phase": _row(
        "shift_phase",
        what="the same, and it shows in one phase",
        needs="phases over the run",
        explanation="It shows in {phase}, which takes {phase_after}; before, it took "
        "{phase_before}.",
        remedy="Find out what the script does there from that step on.",
        when_contended=_BOTH_SIDES,
    ),
}
"""The rows by what explains most of the change; the first is for an unexplained change."""

AILMENTS = tuple(BY_CHANGE.values())
