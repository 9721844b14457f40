"""The work of one step, from what the guest counted on one update.

In: a rank's steps, and what an extra child counted, if there was one. Out: a count that stands for
a step, or the reason why there is none. What it is a share of is left to `core.utilization`.
"""

from __future__ import annotations

from dataclasses import replace

from steptime.measure.signals import CountSeen
from steptime.measure.steps import RankSteps
from steptime.measure.window import Window

_COMPILED = "compiled"
_OUTSIDE_FRACTION = 0.01
"""More of the backward than that belongs to no call that was seen: its forward was not counted."""


def find_count(rank: RankSteps, window: Window, extra: CountSeen | None) -> CountSeen:
    """The work of a step; that of the run itself counts more than that of an extra child.

    Args:
        rank: whose update was counted.
        window: its steady steps.
        extra: of the extra child.
    """
    own = rank.signals.count
    found = own if own is not None and own.count is not None else extra or own
    if found is None or found.count is None:
        return found or CountSeen()
    if own is not None and own.missing == _COMPILED:  # the child ran it without compiling
        found = replace(found, count=replace(found.count, is_executed=False))
    missing = _why_no_step(found, rank, window)
    return found if missing is None else CountSeen(missing=missing)


def _why_no_step(found: CountSeen, rank: RankSteps, window: Window) -> str | None:
    """Why the work of an update is not that of a step, a machine word."""
    count = found.count
    assert count is not None
    if rank.num_updates and round(rank.num_updates / rank.num_steps) != found.num_updates:
        return "several_optimizers"
    if window.period is not None and window.period > 1:
        return "steps_differ"
    if not count.backward:
        return "no_backward_seen"
    if count.outside_flops > _OUTSIDE_FRACTION * count.backward:
        return "outside_modules"
    return None
