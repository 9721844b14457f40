"""Tells the loops of one process apart: a pretraining and a finetuning, two networks in turns.

In: the steps of one rank. Out: the steps of each loop, the one that took most time first; nothing
where there is one loop. A step's optimizers say which loop it is of. Loops that repeat one another,
such as the folds of a cross-validation, are one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from steptime.core.stats import median
from steptime.measure.steps.step_fold import RankSteps
from steptime.record.buckets import INPUT_ROWS, TRAINED_ELEMENTS
from steptime.record.places import BY_HAND

MIN_STEPS = 6
"""Optimizers that step less often have no loop of which anything could be said."""

_TRAINED = 1 + TRAINED_ELEMENTS - INPUT_ROWS
"""Place of the trained weights in a row of sizes, behind the optimizer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSteps:
    """The steps of a loop.

    Attributes:
        steps: their indices, in order.
        optimizers: numbers of the optimizers that step in it; of loops that repeat one another,
            all of them.
        total_s: wall time of the steps [s].
        usual_s: the same, if each took as long as the usual one [s]: steps that a probe made
            longer, or that hold the time between two loops, do not decide which one is longest.
    """

    steps: Sequence[int]
    optimizers: tuple[int, ...]
    total_s: float
    usual_s: float


def loops_apart(rank: RankSteps) -> tuple[LoopSteps, ...]:
    """Return the loops of a rank, the longest first; none where it has one, or has blocks."""
    alike, groups = ({}, {}) if rank.blocks else _alike(rank)
    loops = [_loop(rank, keys, groups) for keys in alike.values()]
    return tuple(sorted(loops, key=lambda one: -one.usual_s)) if len(loops) > 1 else ()


def num_summed_loops(rank: RankSteps) -> int:
    """Return how many loops are told as one, because the rank's later steps are in blocks.

    A block does not say whose steps it holds. An optimizer that first stepped in a block, at
    another line or of another class than those before, has a loop of its own. Zero where there is
    one loop.
    """
    if not rank.blocks:
        return 0
    single = {one for optimizers in set(rank.steps.optimizers) for one in optimizers}
    rows = rank.signals.optimizers
    met = {row[1:] for row in rows if row.number in single}
    later = {row[1:] for row in rows if row.number not in single} - met
    num = max(1, len(_alike(rank)[0])) + len(later)
    return num if num > 1 and single != {BY_HAND} else 0


def _alike(
    rank: RankSteps,
) -> tuple[dict[tuple[object, ...], list[frozenset[int]]], dict[frozenset[int], list[int]]]:
    """Return the optimizers of each loop, by kind, and the steps of each; empty for one loop."""
    by_optimizers: dict[frozenset[int], list[int]] = {}
    for place, optimizers in enumerate(rank.steps.optimizers):
        by_optimizers.setdefault(frozenset(optimizers), []).append(place)
    groups = {key: places for key, places in by_optimizers.items() if len(places) >= MIN_STEPS}
    known = [optimizer for key in groups for optimizer in key]
    if len(groups) < 2 or len(set(known)) < len(known) or BY_HAND in known:
        return {}, {}
    alike: dict[tuple[object, ...], list[frozenset[int]]] = {}
    for key, places in groups.items():
        alike.setdefault(_kind(rank, key, places), []).append(key)
    return alike, groups


def _kind(rank: RankSteps, key: frozenset[int], places: Sequence[int]) -> tuple[object, ...]:
    """Return what loops that repeat one another share: lines, classes, the size of the model."""
    rows = {row.number: row for row in rank.signals.optimizers}
    met = sorted((rows[one][1:] for one in key if one in rows), key=repr)
    sizes = rank.sizes.rows_of(places[-1]) if rank.sizes.columns else []
    return len(key), *met, *sorted(row[_TRAINED] for row in sizes)


def _loop(
    rank: RankSteps, keys: Sequence[frozenset[int]], groups: dict[frozenset[int], list[int]]
) -> LoopSteps:
    places = sorted(place for key in keys for place in groups[key])
    times_s = [rank.steps.times_s[place] for place in places]
    flags = [rank.steps.is_disturbed[place] for place in places]
    usual_s = [time_s for time_s, flag in zip(times_s, flags, strict=True) if not flag]
    return LoopSteps(
        steps=[rank.steps.index[place] for place in places],
        optimizers=tuple(sorted(one for key in keys for one in key)),
        total_s=math.fsum(times_s),
        usual_s=len(places) * median(usual_s or times_s),
    )
