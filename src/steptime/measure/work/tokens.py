"""Finds how many rows and tokens a step trains on, from the sizes of the models' inputs.

In: a rank's steps and its window. Out: those of the mean step. Only the guest knows whether inputs
are tokens; padding counts, and `padding` has its share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steptime.record.buckets import SIZES

if TYPE_CHECKING:
    from steptime.measure.steps.steady_window import StepWindow
    from steptime.measure.steps.step_fold import RankSteps


def tokens_per_step(rank: RankSteps, window: StepWindow) -> float | None:
    """Return the tokens of a mean step of the window; None where inputs are no tokens."""
    return size_per_step(rank, window, "input_elements") if rank.signals.has_tokens else None


def size_per_step(rank: RankSteps, window: StepWindow, name: str) -> float | None:
    """Return one of `record.buckets.SIZES` in a mean step; None where no input was seen."""
    place, sizes = SIZES.index(name), rank.sizes
    if not sizes.columns:
        return None
    column = sizes.columns[place]
    steps = [sizes.rounds[index] for index in window.steps.index]
    total = float(sum(sum(column[begin:end]) for begin, end in steps))
    num = len(steps)
    for block in window.blocks:
        if block.sizes:
            total, num = total + block.sizes[place], num + block.num_steps
    return total / num if num and total else None
