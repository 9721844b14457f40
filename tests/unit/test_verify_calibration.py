"""Calibration of probabilities, with planted errors of known size."""

from __future__ import annotations

import math
from typing import Any

import pytest

pytest.importorskip("sklearn", reason="the extra verify-model is not installed")
np = pytest.importorskip("numpy", reason="the extra verify-model is not installed")

from steptime.errors import DataError  # noqa: E402
from steptime.verify.model.calibration import Promises, judge_calibration  # noqa: E402
from steptime.verify.values import Outcome  # noqa: E402


def judged(p: Any, y: Any) -> Any:
    return judge_calibration(Promises(p, np.asarray(y, dtype=float)), arm="model")


def test_overconfidence_of_a_tenth_is_a_tenth_and_a_promise_of_60_comes_true_in_50():
    random = np.random.default_rng(0)
    p = random.uniform(0.5, 1, 100_000)
    found = judged(p, random.random(len(p)) < p - 0.1)

    assert found.outcome is Outcome.FAIL
    for error in (found.error, found.error_coarse, found.error_fine, found.error_smooth):
        assert error == pytest.approx(0.1, abs=0.004)
    near = min(found.bins, key=lambda one: abs(one.promised - 0.6))
    assert near.is_broken
    assert near.happened.estimate == pytest.approx(near.promised - 0.1, abs=0.02)


def test_squared_odds_have_their_exact_error_and_half_the_logit_repairs_them():
    random = np.random.default_rng(1)
    p = random.random(200_000)
    found = judged(p**2 / (p**2 + (1 - p) ** 2), random.random(len(p)) < p)

    assert found.error == pytest.approx(math.log(2) / 2 - 0.25, abs=0.003)
    repairs = {one.method: one for one in found.repairs}
    assert repairs["temperature"].parameters[0].value == pytest.approx(2, abs=0.03)
    assert repairs["platt"].parameters[0].value == pytest.approx(0.5, abs=0.01)
    assert all(one.is_proven and one.error_after < 0.005 for one in found.repairs)


def test_a_calibrated_model_passes_though_its_error_is_not_0():
    random = np.random.default_rng(2)
    p = random.random(1000)
    found = judged(p, random.random(1000) < p)

    assert found.outcome is Outcome.PASS
    assert found.error_of_chance == pytest.approx(0.038, abs=0.002)
    assert found.limit_of_chance == pytest.approx(0.050, abs=0.003)
    assert found.repairs == ()
    assert found.num_per_bin == 343  # a bin of 67 rows cannot tell 0.6 from 0.5
    assert found.least_seen == pytest.approx(0.07)


@pytest.mark.parametrize("num", [50, 1000])
def test_calibrated_models_are_refused_in_one_of_twenty_draws(num):
    random = np.random.default_rng(3)
    refused = 0
    for _ in range(60):
        p = np.round(random.random(num), 1)  # ties
        refused += judged(p, random.random(num) < p).outcome is Outcome.FAIL

    assert refused <= 9  # above that with a probability of 0.001 at a level of 5 %


def test_errors_that_cancel_within_coarse_bins_are_seen_in_fine_ones():
    random = np.random.default_rng(4)
    p = random.random(100_000)
    shift = np.where((p * 20).astype(int) % 2 == 0, 0.1, -0.1)
    found = judged(p, random.random(len(p)) < np.clip(p + shift, 0, 1))

    assert found.error_coarse == pytest.approx(0.005, abs=0.002)
    assert found.error_fine == pytest.approx(0.097, abs=0.005)
    assert found.is_cancelling
    best = found.repairs[0]
    assert best.method == "isotonic" or not any(one.is_proven for one in found.repairs)


def test_what_cannot_be_calibrated_is_refused_by_name():
    y = np.array([0.0, 1.0, 1.0])
    with pytest.raises(DataError, match=r"ProbabilitiesInvalid: .* in 2 of 3 rows"):
        judged(np.array([0.5, 1.2, math.nan]), y)
    with pytest.raises(DataError, match="OneClassOnly: each of the 3 rows"):
        judged(np.array([0.5, 0.2, 0.3]), np.ones(3))


def test_the_same_rows_give_the_same_bits():
    random = np.random.default_rng(5)
    p = random.random(500)
    y = random.random(500) < p**2

    assert judged(p, y) == judged(p, y)
