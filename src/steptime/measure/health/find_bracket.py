"""Finds the layer and the samples of the first number that is not finite.

In: the ranks with the lines of a probe, and the numbers that became bad. Out: a `LayerHealth`; None
where nobody asked for a probe.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from steptime.measure.health.layer_curves import make_curves
from steptime.measure.values.model.health import NonFinite
from steptime.measure.values.model.layer_health import Bracket, BracketSide, LayerHealth

if TYPE_CHECKING:
    from steptime.measure.fold.code_places import CodePlaces
    from steptime.measure.steps.step_fold import RankSteps


def find_layers(
    ranks: Sequence[RankSteps], busiest: RankSteps, found: NonFinite | None, places: CodePlaces
) -> LayerHealth | None:
    """Return what the probe saw in the rank that went bad first, or else in the busiest."""
    wanted = busiest.head.rank if found is None else found.rank
    rank = next((one for one in ranks if one.head.rank == wanted), busiest)
    look, seen = rank.signals.look, rank.signals.brackets
    if look is None:
        return None
    own = None if found is None else choose(seen, found)
    curves, num_left_out = make_curves(rank.signals.layers)
    return replace(
        look,
        bracket=None if own is None or found is None else _bracket(own, found, places),
        num_brackets=len(seen),
        curves=curves,
        num_curves_left_out=num_left_out,
    )


def choose(seen: Sequence[Bracket], found: NonFinite) -> Bracket | None:
    """Return the bracket of bad numbers: of their first update, or of the one that showed it.

    Where not every update was seen to be good or bad, it is the last one between.
    """
    since = found.last_finite_update or 0
    inside = [one for one in seen if since < one.update <= found.first_update]
    shown = (one for one in seen if one.update == found.first_update + 1)
    return inside[-1] if inside else next(shown, None)


def _bracket(seen: Bracket, found: NonFinite, places: CodePlaces) -> Bracket:
    forward, backward = _named(seen.forward, places), _named(seen.backward, places)
    samples, are_rows, missing = find_samples(
        main_side(forward, backward), is_before=seen.update > found.first_update
    )
    return replace(
        seen,
        rank=found.rank,
        forward=forward,
        backward=backward,
        bad_samples=samples,
        samples_are_rows=are_rows,
        samples_missing=missing,
    )


def main_side(forward: BracketSide | None, backward: BracketSide | None) -> BracketSide | None:
    """Return the side that came first: a bad forward makes the backward bad."""
    return backward if forward is None else forward


def _named(side: BracketSide | None, places: CodePlaces) -> BracketSide | None:
    if side is None or side.file is None:
        return side
    return replace(side, file=places.name(side.file))


def find_samples(
    side: BracketSide | None, *, is_before: bool
) -> tuple[tuple[int, ...] | None, bool, str | None]:
    """Return the samples to look at, whether they are bad rows alone, and why there are none.

    Args:
        side: where the first bad number was.
        is_before: the update before broke the weights, so that its batch is the one to look at.
    """
    if side is None:
        return None, False, "no_loader_seen"
    if is_before:
        return side.samples_before, False, None if side.samples_before else "no_loader_seen"
    if side.samples is None:
        return None, False, side.samples_missing
    is_whole = side.num_rows == len(side.samples)
    if side.rows and is_whole:
        return tuple(side.samples[row] for row in side.rows), True, None
    return side.samples, False, None
