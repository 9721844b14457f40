"""Finds the work of one step, from what the guest counted on one update.

In: a rank's steps, and what an extra child counted, if there was one. Out: a count that represents
a step, or the reason why there is none. `diagnose.utilization` relates it to the peak.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from steptime.measure.rank_signals import CountSeen
from steptime.measure.steps.steady_window import StepWindow
from steptime.measure.steps.step_fold import RankSteps

_COMPILED = "compiled"
_SEVERAL = 2
_OUTSIDE_FRACTION = 0.01
"""Beyond this share, too much of the backward belongs to calls whose forward was not counted."""


def find_count(
    rank: RankSteps, window: StepWindow, extra: CountSeen | None, *, ranks: Sequence[RankSteps]
) -> CountSeen:
    """Return the work of a step; a count of the run itself precedes that of an extra child.

    Args:
        rank: the rank whose update was counted.
        window: the steady steps of this rank.
        extra: the count of the extra child.
        ranks: all ranks.
    """
    own = rank.signals.count
    found = own if own is not None and own.count is not None else extra or own
    if found is None or found.count is None:
        return found or CountSeen()
    count = found.count
    if own is not None and own.missing == _COMPILED:  # the child ran it without compiling
        count = replace(count, is_executed=False)
    missing = _why_no_step(found, rank, window)
    if missing is not None:
        return CountSeen(missing=missing)
    return replace(found, count=replace(count, rank_flops=_flops_of(ranks)))


def _flops_of(ranks: Sequence[RankSteps]) -> tuple[int, ...]:
    """Return what every rank counted in as many updates; empty if one has no count."""
    seen = [rank.signals.count for rank in ranks]
    if len(seen) < _SEVERAL or len({one.num_updates for one in seen if one is not None}) != 1:
        return ()
    totals = [None if one is None or one.count is None else one.count.total for one in seen]
    return () if None in totals else tuple(one for one in totals if one is not None)


def _why_no_step(found: CountSeen, rank: RankSteps, window: StepWindow) -> str | None:
    """Return why the work of an update is not that of a step, as a machine word."""
    count = found.count
    assert count is not None
    if rank.num_updates and round(rank.num_updates / rank.num_steps) != found.num_updates:
        return "several_optimizers"
    if window.period is not None and window.period > 1:
        return "steps_differ"
    if count.forward and not count.backward:
        return "no_backward_seen"
    if count.outside_flops > _OUTSIDE_FRACTION * count.backward:
        return "outside_modules"
    return None
