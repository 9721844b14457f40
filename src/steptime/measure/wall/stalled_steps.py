"""Joins stalls with the steps that they fell into, when the steps of a run are known.

In: the folded ranks, and the stalls as the watch wrote them. Out: ranks whose stalled steps do not
count, and stalls with the number of steps that were done.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from steptime.measure.steps.step_fold import RankSteps
from steptime.measure.steps.step_table import StepTable
from steptime.measure.values.stall import Stall


def mark_stalled(rank: RankSteps, stalls: Sequence[Stall]) -> RankSteps:
    """Return the rank with its stalled steps marked: they are no steady steps.

    Folded blocks stay as they are, since only the times of their steps are known.
    """
    middles = [s.began_unix_s + s.duration_s / 2 for s in stalls if s.duration_s is not None]
    if not middles:
        return rank
    offsets_s = [middle - rank.head.t_unix_s for middle in middles]
    steps = rank.steps
    stalled = [place for place in range(len(steps)) if _holds(steps, place, offsets_s)]
    return replace(rank, steps=steps.disturb(stalled))


def _holds(steps: StepTable, place: int, offsets_s: Sequence[float]) -> bool:
    begin_s, end_s = steps.begin_s(place), steps.end_s[place]
    return any(begin_s < offset_s < end_s for offset_s in offsets_s)


def count_steps(stalls: Sequence[Stall], ranks: Sequence[RankSteps]) -> tuple[Stall, ...]:
    """Return the stalls with the steps that each rank had made when it was probed.

    The watch counts updates, and those of the last 0.2 s are not on disk yet.
    """
    known = {rank.head.rank: rank for rank in ranks}
    return tuple(
        replace(
            stall,
            ranks=tuple(
                one
                if one.rank is None or one.rank not in known
                else replace(one, num_steps=_steps_until(known[one.rank], stall.seen_unix_s))
                for one in stall.ranks
            ),
        )
        for stall in stalls
    )


def _steps_until(rank: RankSteps, unix_s: float) -> int:
    until_s = unix_s - rank.head.t_unix_s
    singles = sum(end_s <= until_s for end_s in rank.steps.end_s)
    return singles + sum(block.num_steps for block in rank.blocks if block.end_s <= until_s)
