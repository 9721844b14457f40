"""Losses that are drawn over each other: the same distance and limit that lockstep judges."""

from __future__ import annotations

import math

import pytest

from steptime.verify.lockstep import check_lockstep
from steptime.verify.loss_distance import MAX_POINTS, compare_losses, thinned
from unit.recordings import at, make_recording, make_update, noisy

BASELINE = make_recording()
OTHERS = [make_recording(change=noisy(1e-4, seed=seed)) for seed in (1, 2, 3)]


@pytest.mark.parametrize("are_redrawn", [False, True])
@pytest.mark.parametrize("size", [1e-5, 1e-4, 1e-2])
def test_the_last_distance_and_limit_are_those_of_the_check(
    *, size: float, are_redrawn: bool
) -> None:
    candidate = make_recording(change=noisy(size, seed=9))

    found = compare_losses(BASELINE, OTHERS, candidate, are_redrawn=are_redrawn)
    check = check_lockstep(BASELINE, OTHERS, candidate, are_redrawn=are_redrawn)[0]

    assert found is not None
    assert check.name == "lockstep"
    assert found.distance[-1] == pytest.approx(check.estimate)
    assert found.limit[-1] == pytest.approx(check.limit)
    assert found.num_runs == 3


def test_the_envelope_holds_the_losses_of_all_runs_as_written() -> None:
    found = compare_losses(BASELINE, OTHERS, BASELINE)

    assert found is not None
    (curve,) = found.curves
    assert curve.updates == tuple(range(40))
    assert curve.baseline[0] == 2.0
    for low, middle, high in zip(curve.low, curve.baseline, curve.high, strict=True):
        assert low is not None
        assert middle is not None
        assert high is not None
        assert low <= middle <= high
    assert set(found.distance) == {0.0}


def test_without_other_runs_there_is_no_envelope() -> None:
    found = compare_losses(BASELINE, (), BASELINE)

    assert found is not None
    assert (found.limit, found.curves[0].low, found.num_runs) == ((), (), 0)


def test_many_updates_are_thinned_and_the_envelope_keeps_its_ends() -> None:
    long = make_recording(num_updates=5000)
    spike = make_recording(
        num_updates=5000,
        change=lambda u: make_update(u.n, loss=50.0) if u.n == 1234 else u,
    )

    found = compare_losses(long, [spike], long)

    assert found is not None
    (curve,) = found.curves
    assert len(curve.updates) == len(found.updates) == MAX_POINTS
    assert max(v for v in curve.high if v is not None) == 50.0
    assert max(v for v in curve.low if v is not None) <= 2.0
    assert (curve.updates[-1], found.updates[-1]) == (4999, 4999)


@pytest.mark.parametrize(("num", "most"), [(0, 5), (1, 5), (5, 5), (7, 3), (1000, 300)])
def test_stretches_cover_each_place_once(num: int, most: int) -> None:
    found = thinned(num, most)

    assert [place for part in found for place in part] == list(range(num))
    assert len(found) == min(num, most)
    assert all(found)


def test_each_optimizer_has_a_curve() -> None:
    taking_turns = make_recording(change=lambda u: make_update(u.n, opt=u.n % 2, loss=1 + u.n % 2))

    found = compare_losses(taking_turns, (), taking_turns)

    assert found is not None
    assert [set(curve.baseline) for curve in found.curves] == [{1.0}, {2.0}]
    assert found.curves[1].updates[:3] == (1, 3, 5)


def test_a_loss_that_is_not_finite_is_a_gap_and_leaves_no_distance() -> None:
    broken = make_recording(change=at(30, losses=(math.nan.hex(),)))

    found = compare_losses(BASELINE, OTHERS, broken)

    assert found is not None
    assert found.curves[0].candidate[29:31] == (pytest.approx(2 * math.exp(-29 / 50)), None)
    assert (found.distance, found.limit) == ((), ())


def test_without_any_loss_there_is_nothing_to_draw() -> None:
    silent = make_recording(change=at(0, losses=()))

    assert compare_losses(silent, (), silent) is None
