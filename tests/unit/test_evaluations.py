"""The losses of evaluations: what the guest takes, the curve, and what is overfitting."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from steptime.diagnose.ailments.health.overfitting import find_overfitting
from steptime.guest.health.evaluation_losses import EvaluationLosses
from steptime.guest.timeline.recorder import Recorder
from steptime.measure.health.evaluation_curve import MIN_EVALUATIONS, make_evaluations
from steptime.measure.values.model.health import Health
from steptime.measure.values.model.training_health import EvaluationCurve
from steptime.record.health_rows import EvaluationRow
from steptime.record.rows import LossRow
from unit.builders import make_measurement

NUM_EVALUATIONS, EVERY = 20, 50


def curve_of(
    means: list[float], *, scatter: float = 0.02, trains: Any = None
) -> EvaluationCurve | None:
    """Evaluations of 20 batches, every 50 updates; the training falls if nothing else is said."""
    rows = [EvaluationRow(EVERY * i, 20, mean, scatter) for i, mean in enumerate(means)]
    losses = trains or (lambda n: 2.0 * math.exp(-n / 300))
    return make_evaluations(
        rows, [LossRow(n, 0, 0, losses(n), None) for n in range(1, EVERY * len(means) + 1)]
    )


def is_found(curve: EvaluationCurve | None) -> bool:
    health = Health(num_seen=1, evaluations=curve)
    return find_overfitting(replace(make_measurement(), health=health)) is not None


def valley(place: int) -> list[float]:
    return [2.0 - 0.1 * min(i, place) + 0.05 * max(0, i - place) for i in range(NUM_EVALUATIONS)]


def test_evaluations_that_rise_while_the_training_falls() -> None:
    curve = curve_of(valley(8))
    assert curve is not None
    assert curve.lowest_update == 8 * EVERY
    assert curve.lowest == pytest.approx(1.25)
    assert curve.last == pytest.approx(1.7)
    assert curve.num_above == 10
    assert curve.rise.low > 0
    assert curve.gap is not None
    assert curve.gap.low < curve.last - 2.0 * math.exp(-975 / 300) < curve.gap.high
    assert is_found(curve)


def test_no_overfitting_while_both_rise_or_both_fall() -> None:
    assert not is_found(curve_of(valley(8), trains=lambda n: 1.0 + n / 1000))
    assert not is_found(curve_of([2.0 - 0.05 * i for i in range(NUM_EVALUATIONS)]))


def test_few_evaluations_say_nothing() -> None:
    assert curve_of(valley(1)[: MIN_EVALUATIONS - 1]) is None
    assert curve_of([math.nan, *valley(1)[: MIN_EVALUATIONS - 1]]) is None


def test_a_sum_has_no_gap_but_may_rise() -> None:
    curve = curve_of([100 * value for value in valley(8)], scatter=2.0)
    assert curve is not None
    assert curve.gap is None
    assert is_found(curve)


@pytest.mark.parametrize("shape", ["flat", "levels off", "noisy", "one jump at the end"])
def test_healthy_evaluations_raise_no_alarm(shape: str) -> None:
    alarms = 0
    for seed in range(200):
        chance = random.Random(seed)
        noise = 0.2 if shape == "noisy" else 0.02
        base = 1.0 if shape == "flat" else 0.0
        means = [
            base + (1.0 + math.exp(-i / 4)) * (shape != "flat") + chance.gauss(0, noise)
            for i in range(NUM_EVALUATIONS)
        ]
        if shape == "one jump at the end":
            means[-1] += 1.0
        alarms += is_found(curve_of(means, scatter=noise))
    assert alarms <= 2  # of 200 runs, each of a thousand updates


# -- in the guest


class Evaluating:
    def __init__(self, folder: Path) -> None:
        self.torch = pytest.importorskip("torch")
        recorder = Recorder(str(folder), lambda: {"rank": 0})
        self.journal: Any = SimpleNamespace(num_updates=0, losses=None)
        recorder.journals.append(self.journal)
        self.losses = EvaluationLosses(self.torch, recorder)

    def evaluate(self, *values: float, is_models: bool = False) -> None:
        for value in values:
            loss = self.torch.tensor(value)
            logits = self.torch.zeros(2, 2)
            result = (logits, loss) if is_models else logits
            self.losses.see_call(result, self.journal)
            self.losses.see_loss(loss, self.journal.num_updates)

    def rows(self, *, is_last: bool = False) -> list[list[Any]]:
        text = self.losses.poll(0, is_last=is_last)
        return json.loads(text)["rows"] if text else []


@pytest.fixture
def evaluating(tmp_path: Path) -> Evaluating:
    return Evaluating(tmp_path)


def test_an_evaluation_is_a_row_when_it_is_over(evaluating: Evaluating) -> None:
    evaluating.evaluate(1.0, 3.0)
    assert evaluating.rows() == []
    evaluating.journal.num_updates = 10
    assert evaluating.rows() == [[0, 2, 2.0, 1.0]]
    evaluating.evaluate(4.0)
    evaluating.journal.num_updates = 20
    evaluating.evaluate(5.0)
    assert evaluating.rows(is_last=True) == [[10, 1, 4.0, 0.0], [20, 1, 5.0, 0.0]]


def test_a_models_own_loss_is_not_counted_twice(evaluating: Evaluating) -> None:
    evaluating.evaluate(1.0, 2.0, is_models=True)
    assert evaluating.rows(is_last=True) == [[0, 2, 1.5, 0.5]]


def test_a_loss_without_an_evaluation_is_none(evaluating: Evaluating) -> None:
    evaluating.losses.see_loss(evaluating.torch.tensor(1.0), 0)
    assert evaluating.rows(is_last=True) == []


def test_what_is_no_loss_is_passed_over(evaluating: Evaluating) -> None:
    torch = evaluating.torch
    two = (torch.tensor(1.0), torch.tensor(2.0))
    for result in (two, None, torch.zeros(3), {"loss": None}, "text", torch.tensor(3)):
        evaluating.losses.see_call(result, evaluating.journal)
    evaluating.losses.see_call({"loss": torch.tensor(7.0)}, evaluating.journal)
    assert evaluating.rows(is_last=True) == [[0, 1, 7.0, 0.0]]
