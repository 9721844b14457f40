"""Lays the losses of two runs over each other, to be drawn; one curve for each optimizer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean

from steptime.verify.lockstep import lanes_of
from steptime.verify.recordings import Recording
from steptime.verify.values import LossOverlay

MAX_POINTS = 300
"""More points than that lie closer together than a screen shows."""

MAX_CURVES = 4
"""Optimizers beyond the fourth are not drawn."""


def overlay_losses(baseline: Recording, candidate: Recording) -> tuple[LossOverlay, ...]:
    """Return the losses with the levers beside those as written; none without a common update."""
    found = lanes_of(baseline, candidate, ())
    places: dict[int, list[int]] = {}
    for place, optimizer in enumerate(found.optimizers if found else ()):
        places.setdefault(optimizer, []).append(place)
    return tuple(
        _overlay(found.updates, found.losses, places[optimizer])
        for optimizer in sorted(places)[:MAX_CURVES]
        if found
    )


def thinned(num: int, most: int = MAX_POINTS) -> list[range]:
    """Return at most so many stretches that together cover the places from 0 to `num` - 1."""
    count = min(num, most)
    edges = [num * i // count for i in range(count + 1)] if count else [0]
    return [range(low, high) for low, high in pairwise(edges)]


def _overlay(
    updates: Sequence[int], lanes: Sequence[Sequence[float]], places: Sequence[int]
) -> LossOverlay:
    """Return the losses at these places: means over a stretch."""
    parts = [[places[i] for i in part] for part in thinned(len(places))]
    baseline, candidate = (
        tuple(
            fmean(values) if all(map(math.isfinite, values)) else None
            for values in ([lane[i] for i in part] for part in parts)
        )
        for lane in lanes
    )
    return LossOverlay(
        updates=tuple(updates[part[-1]] for part in parts),
        baseline=baseline,
        candidate=candidate,
    )
