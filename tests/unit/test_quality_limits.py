"""Limits of one step with their intervals: what the number of draws changes, and what not."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest

from steptime.levers.base import Preserves
from steptime.tune.trials import judging
from steptime.tune.trials.judging import Claim, judge_state
from steptime.tune.values.study_values import TrialEnd
from steptime.verify.judge_quality import Reference, judge, needs_draws
from steptime.verify.numerics import OPEN, of_draws
from steptime.verify.recordings import Recording
from steptime.verify.values import Outcome, QualityCheck, Verdict
from unit.recordings import make_recording, make_tensors, noisy
from unit.test_tune_judging import Runs

BF16 = 2.0**-8
ERROR = 0.05


def draws(num: int, seed: int, *, elements: int = 24) -> list[float]:
    """The distances of perturbed runs: roots of sums of squares, as those of a small tensor."""
    rng = random.Random(seed)
    return [math.hypot(*(rng.gauss(0, 1) for _ in range(elements))) for _ in range(num)]


def test_a_limit_does_not_grow_with_the_number_of_draws() -> None:
    of_three, of_nine = (
        fmean(of_draws(draws(num, seed)).value for seed in range(400)) for num in (3, 9)
    )

    assert of_nine == pytest.approx(of_three, rel=0.01)


@pytest.mark.parametrize("num", [3, 6, 9])
def test_the_interval_holds_the_limit(num: int) -> None:
    true = fmean(max(draws(3, seed)) for seed in range(4_000))
    limits = [of_draws(draws(num, seed)) for seed in range(2_000)]

    too_high = sum(limit.low > true for limit in limits) / len(limits)
    too_low = sum(limit.high < true for limit in limits) / len(limits)
    assert too_high < 0.08  # 5 % each, and what the tails of such draws add
    assert too_low < 0.08
    assert fmean(limit.high - limit.low for limit in limits) < {3: 6, 6: 3, 9: 2}[num]


def test_few_draws_have_no_spread_and_infinite_ones_no_limit() -> None:
    assert of_draws([]).high == 0.0
    assert of_draws([1.0, 2.0]).low == of_draws([1.0, 2.0]).high == 2.0
    assert of_draws([1.0, math.inf, 2.0]).low == math.inf


def rounded(error: float, seed: int) -> Recording:
    return make_recording(
        change=noisy(0.002, seed=seed), first=make_tensors(error=error, seed=seed)
    )


def verdict_of(error: float, num: int) -> Verdict:
    reference = Reference(
        baseline=make_recording(first=make_tensors(error=1e-7, seed=1)),
        again=make_recording(),
        double=make_recording(num_updates=4, first=make_tensors(), is_double=True),
        perturbed=tuple(rounded(ERROR, seed) for seed in range(2, 2 + num)),
        roundoff=BF16,
        num_repeats=num,
    )
    return judge(reference, rounded(error, 99), preserves="NUMERIC")


@pytest.mark.parametrize(
    ("error", "outcomes"),
    [
        (1.0, [Outcome.PASS] * 3),
        (3.4, [Outcome.INCONCLUSIVE, Outcome.INCONCLUSIVE, Outcome.INCONCLUSIVE]),
        (8.0, [Outcome.FAIL] * 3),
    ],
)
def test_an_error_near_its_limit_asks_for_draws(error: float, outcomes: list[Outcome]) -> None:
    found = [verdict_of(error * ERROR, num) for num in (3, 6, 9)]

    assert [one.outcome for one in found] == outcomes
    assert [needs_draws(one) for one in found] == [one is Outcome.INCONCLUSIVE for one in outcomes]


def test_what_is_open_for_another_reason_asks_for_none() -> None:
    undecided = QualityCheck(name="lockstep", outcome=Outcome.INCONCLUSIVE, detail="chance alone")
    near = replace(undecided, name="one_step", detail=f"gradient of 0.weight: {OPEN}")
    verdict = Verdict(outcome=Outcome.INCONCLUSIVE, level=None, checks=(undecided, near))

    assert not needs_draws(verdict)
    assert needs_draws(replace(verdict, checks=(near,)))


@pytest.mark.parametrize(("num_open", "num_draws"), [(0, 3), (1, 6), (2, 9), (9, 9)])
def test_further_draws_are_made_until_the_error_is_decided(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, num_open: int, num_draws: int
) -> None:
    runs = Runs(tmp_path, TrialEnd.FINISHED)
    near = QualityCheck(name="one_step", outcome=Outcome.INCONCLUSIVE, detail=OPEN)

    def decide(reference: Reference, candidate: Recording, *, preserves: str) -> Verdict:
        is_open = reference.num_repeats <= 3 * num_open
        outcome = Outcome.INCONCLUSIVE if is_open else Outcome.PASS
        return Verdict(outcome=outcome, level=None, checks=(near,) if is_open else ())

    monkeypatch.setattr(judging, "judge", decide)
    claim = Claim(preserves=Preserves.NUMERIC, roundoff=BF16)
    verdict = judge_state(claim, runs, tmp_path / "quality", updates=20)

    assert verdict.outcome is (Outcome.INCONCLUSIVE if num_open == 9 else Outcome.PASS)
    assert sum(name.startswith("perturbed") for name in runs.names) == num_draws
    assert runs.names.count("candidate") == 1
