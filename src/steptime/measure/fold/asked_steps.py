"""Finds the steps of a rank that were examined because somebody asked while it trained.

In: the lines `asked` of a rank, and its steps. Out: the steps by number.
"""

from __future__ import annotations

from bisect import bisect_right

from steptime.measure.steps.step_fold import RankSteps
from steptime.measure.values.answer import AskedSteps
from steptime.record.places import NS


def steps_asked(rank: RankSteps) -> tuple[AskedSteps, ...]:
    """Return the steps that were examined because somebody asked, in order."""
    return tuple(
        AskedSteps(
            what=asked.what,
            first_step=_step_at(rank, asked.t[0] * NS),
            last_step=_step_at(rank, asked.t[1] * NS),
        )
        for asked in rank.signals.asked
        if rank.num_steps
    )


def _step_at(rank: RankSteps, time_s: float) -> int:
    """Return the step in progress at a time [s on the head's clock]; the last one after the end.

    Inside a block, where only the times of steps are known, spans are taken as evenly spread.
    """
    steps = rank.steps
    if steps and time_s < steps.end_s[-1]:
        return bisect_right(steps.end_s, time_s)
    for block in rank.blocks:
        if time_s < block.end_s:
            share = (time_s - block.start_s) / max(1e-9, block.end_s - block.start_s)
            return block.first_index + min(
                block.num_steps - 1, max(0, int(share * block.num_steps))
            )
    return rank.num_steps - 1
