"""Losses that are drawn over each other."""

from __future__ import annotations

import math

import pytest

from steptime.verify.loss_overlays import MAX_POINTS, overlay_losses, thinned
from unit.recordings import at, make_recording, make_update

BASELINE = make_recording()


def test_many_updates_are_thinned() -> None:
    long = make_recording(num_updates=5000)

    (curve,) = overlay_losses(long, long)

    assert len(curve.updates) == MAX_POINTS
    assert curve.updates[-1] == 4999


@pytest.mark.parametrize(("num", "most"), [(0, 5), (1, 5), (5, 5), (7, 3), (1000, 300)])
def test_stretches_cover_each_place_once(num: int, most: int) -> None:
    found = thinned(num, most)

    assert [place for part in found for place in part] == list(range(num))
    assert len(found) == min(num, most)
    assert all(found)


def test_each_optimizer_has_a_curve() -> None:
    taking_turns = make_recording(change=lambda u: make_update(u.n, opt=u.n % 2, loss=1 + u.n % 2))

    found = overlay_losses(taking_turns, taking_turns)

    assert [set(curve.baseline) for curve in found] == [{1.0}, {2.0}]
    assert found[1].updates[:3] == (1, 3, 5)


def test_a_loss_that_is_not_finite_is_a_gap() -> None:
    broken = make_recording(change=at(30, losses=(math.nan.hex(),)))

    (curve,) = overlay_losses(BASELINE, broken)

    assert curve.baseline[0] == 2.0
    assert curve.candidate[29:31] == (pytest.approx(2 * math.exp(-29 / 50)), None)


def test_without_any_loss_there_is_nothing_to_draw() -> None:
    silent = make_recording(change=at(0, losses=()))

    assert overlay_losses(silent, silent) == ()
