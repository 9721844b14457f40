"""Compares the work of several ranks step by step: the longest batch of a step holds all up.

In: the folded ranks. Out: a `RankBalance`; None for a single rank, or where inputs are neither
tokens nor of known lengths. A stage of a pipeline has other inputs, and is not compared.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from steptime.measure.fold.rank_fold import FoldedRank
from steptime.measure.values.model.useful_work import RankBalance, RankShare
from steptime.measure.work.length_work import LengthWork
from steptime.record.buckets import SIZES

_ELEMENTS, _SQUARES = SIZES.index("input_elements"), SIZES.index("input_squares")

MIN_STEPS = 6
"""As many as a median needs for an interval; fewer say nothing of a mean."""


def find_balance(ranks: Sequence[FoldedRank], work: LengthWork) -> RankBalance | None:
    """Return how even the work of the ranks is."""
    if len(ranks) < 2 or not all(map(_is_comparable, ranks)):
        return None
    common = set.intersection(*(set(rank.window.steps.index) for rank in ranks))
    steps = sorted(common)
    if len(steps) < MIN_STEPS:
        return None
    sizes = [[_sizes_of(rank, step) for step in steps] for rank in ranks]
    each = [[work.of_step(*one) for one in of_rank] for of_rank in sizes]
    most = [max(of_step) for of_step in zip(*each, strict=True)]
    total = math.fsum(map(math.fsum, each)) / len(ranks)
    if total <= 0:
        return None
    return RankBalance(
        num_steps=len(steps),
        excess_fraction=max(0.0, math.fsum(most) / total - 1),
        ranks=tuple(
            RankShare(
                rank=rank.steps.head.rank,
                elements_per_step=sum(elements for elements, _ in of_rank) / len(steps),
                work_fraction=math.fsum(own) / total,
                longest_fraction=sum(a >= b for a, b in zip(own, most, strict=True)) / len(steps),
                forward_s=_forward_s(rank),
            )
            for rank, of_rank, own in zip(ranks, sizes, each, strict=True)
        ),
    )


def _is_comparable(rank: FoldedRank) -> bool:
    seen = rank.steps.signals
    return bool(rank.steps.sizes.columns) and (seen.has_tokens or bool(seen.batches))


def _sizes_of(rank: FoldedRank, step: int) -> tuple[int, int]:
    """Return the elements of a step's inputs, and the squares of the elements of their rows."""
    begin, end = rank.steps.sizes.rounds[step]
    columns = rank.steps.sizes.columns
    return sum(columns[_ELEMENTS][begin:end]), sum(columns[_SQUARES][begin:end])


def _forward_s(rank: FoldedRank) -> float | None:
    table = rank.window.steps
    times = [table.wall_s[name] for name in ("forward", "forward_and_loss") if name in table.wall_s]
    return math.fsum(map(math.fsum, times)) / len(table) if times and len(table) else None
