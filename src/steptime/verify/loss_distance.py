"""Lays the losses of runs over each other, with the envelope in which they must stay.

In: recordings, as `lockstep` compares them. Out: a `LossComparison` to be drawn. The distance is
the one that the check `lockstep` judges, up to each update; its last value is the check's own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from statistics import fmean

from steptime.verify.lockstep import LOCKSTEP_FACTOR, LOSS_FLOOR, REDRAWN_FACTOR, lanes_of
from steptime.verify.recordings import Recording
from steptime.verify.values import LossComparison, LossOverlay

MAX_POINTS = 300
"""More points than that lie closer together than a screen shows."""

MAX_CURVES = 4
"""Optimizers beyond the fourth are not drawn; the distance counts all of them."""


def compare_losses(
    baseline: Recording,
    others: Sequence[Recording],
    candidate: Recording,
    *,
    are_redrawn: bool = False,
) -> LossComparison | None:
    """Return the losses of a candidate beside those of the command as written.

    Args:
        baseline: the command as written.
        others: the runs that make the envelope; none where the same bits are asked for.
        candidate: with the levers.
        are_redrawn: the others had other random draws, instead of perturbed weights.

    Returns:
        The comparison, or None where no update has a loss in all runs.
    """
    found = lanes_of(baseline, candidate, others)
    if found is None:
        return None
    factor = REDRAWN_FACTOR if are_redrawn else LOCKSTEP_FACTOR
    ours, *theirs = map(_running_rms, found.differences)
    limits = [factor * max(sizes) + LOSS_FLOOR for sizes in zip(*theirs, strict=True)]
    kept = thinned(len(found.updates))
    is_finite = all(map(math.isfinite, (*ours, *limits)))
    places: dict[int, list[int]] = {}
    for place, optimizer in enumerate(found.optimizers):
        places.setdefault(optimizer, []).append(place)
    return LossComparison(
        curves=tuple(
            _curve(found.updates, found.losses, places[optimizer])
            for optimizer in sorted(places)[:MAX_CURVES]
        ),
        num_updates=len(found.updates),
        updates=tuple(found.updates[part[-1]] for part in kept) if is_finite else (),
        distance=tuple(ours[part[-1]] for part in kept) if is_finite else (),
        limit=tuple(limits[part[-1]] for part in kept) if is_finite and limits else (),
        num_runs=len(others),
        are_redrawn=are_redrawn,
    )


def thinned(num: int, most: int = MAX_POINTS) -> list[range]:
    """Return at most so many stretches that together cover the places from 0 to `num` - 1."""
    count = min(num, most)
    edges = [num * i // count for i in range(count + 1)] if count else [0]
    return [range(low, high) for low, high in pairwise(edges)]


def _running_rms(values: Sequence[float]) -> list[float]:
    squares = accumulate(value * value for value in values)
    return [math.sqrt(total / (i + 1)) for i, total in enumerate(squares)]


def _curve(
    updates: Sequence[int], lanes: Sequence[Sequence[float]], places: Sequence[int]
) -> LossOverlay:
    """Return the losses at these places: means over a stretch, and the ends of the envelope."""
    parts = [[places[i] for i in part] for part in thinned(len(places))]
    baseline, candidate, *others = lanes
    around = (baseline, *others) if others else ()

    def over(lanes: Sequence[Sequence[float]], reduce: Callable[[list[float]], float]) -> Points:
        found = [[lane[i] for lane in lanes for i in part] for part in parts] if lanes else []
        return tuple(reduce(one) if all(map(math.isfinite, one)) else None for one in found)

    return LossOverlay(
        updates=tuple(updates[part[-1]] for part in parts),
        baseline=over((baseline,), fmean),
        candidate=over((candidate,), fmean),
        low=over(around, min),
        high=over(around, max),
    )


Points = tuple[float | None, ...]
