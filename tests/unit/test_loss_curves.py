"""What is said of a curve of losses: healthy ones raise no alarm, planted faults do."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from healthy_curves import SHAPES, Shape, draw
from steptime.core.process_end import ProcessEnd, RunState
from steptime.diagnose.ailments.health.numerical_health import (
    find_divergence,
    find_flat_loss,
    find_spike,
)
from steptime.diagnose.values.finding import Finding, Severity
from steptime.measure.health.loss_curves import (
    MIN_REPEATED,
    find_growth,
    find_repeats,
    make_curves,
)
from steptime.measure.values.measurement import Measurement
from steptime.measure.values.model.health import Health
from steptime.measure.values.training_loop import TrainingLoop
from steptime.record.rows import LossRow
from unit.builders import make_measurement

NUM_UPDATES = 1000
SEEDS = (101, 102)
MAX_ALARMS_PER_UPDATE = 1 / 1000


def measured(losses: list[float]) -> Measurement:
    rows = [LossRow(number, 0, 0, loss, None) for number, loss in enumerate(losses, start=1)]
    return make_measurement(health=Health(num_seen=len(rows), curves=make_curves(rows)))


def number(finding: Finding | None, name: str) -> float:
    assert finding is not None
    return next(item.value for item in finding.evidence if item.name == name)


def num_alarms(measurement: Measurement) -> int:
    """Spikes one by one, and the other two findings."""
    spike = find_spike(measurement)
    others = (find_divergence(measurement), find_flat_loss(measurement))
    spikes = 0 if spike is None else number(spike, "num_spikes")
    return round(spikes) + sum(other is not None for other in others)


def language_model(*, seed: int = 7) -> list[float]:
    return draw(SHAPES[0], seed=seed, n=NUM_UPDATES)


# -- healthy


def test_twenty_healthy_shapes_raise_less_than_one_alarm_in_a_thousand_updates() -> None:
    assert len(SHAPES) == 20
    drawn = [draw(shape, seed=seed, n=NUM_UPDATES) for shape in SHAPES for seed in SEEDS]

    alarms = sum(num_alarms(measured(losses)) for losses in drawn)

    assert alarms <= MAX_ALARMS_PER_UPDATE * sum(map(len, drawn))


@pytest.mark.parametrize("shape", SHAPES[:5], ids=lambda shape: shape.__name__)
def test_a_schedule_raises_no_alarm_at_all(shape: Shape) -> None:
    assert [num_alarms(measured(draw(shape, seed=seed, n=NUM_UPDATES))) for seed in SEEDS] == [0, 0]


def test_the_first_losses_are_no_spike() -> None:
    assert num_alarms(measured([1.0, 50.0, 1.0, 2.0])) == 0
    assert num_alarms(measured([])) == 0


# -- spikes


@pytest.mark.parametrize("length", [1, 2, 5, 30])
def test_a_spike_is_found_where_it_began(length: int) -> None:
    losses = language_model()
    for place in range(length):
        losses[600 + place] += 3.0

    finding = find_spike(measured(losses))

    assert number(finding, "first_update") == 601
    assert number(finding, "spike_updates") == length
    assert number(finding, "num_spikes") == 1
    assert number(finding, "loss_peak") == pytest.approx(max(losses[600 : 600 + length]))
    assert finding is not None
    assert finding.severity is (Severity.WARNING if length >= 3 else Severity.INFO)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_a_spike_of_fifty_times_the_scatter_is_found_in_nearly_every_shape(shape: Shape) -> None:
    losses = draw(shape, seed=3, n=NUM_UPDATES)
    largest = max(losses[100:]) - min(losses[100:])
    for place in range(5):
        losses[700 + place] += 10 * largest

    assert number(find_spike(measured(losses)), "first_update") in range(700, 703)


def test_the_worst_of_several_spikes_is_told() -> None:
    losses = language_model()
    for place, height in ((300, 3.0), (500, 9.0), (800, 3.0)):
        losses[place] += height

    finding = find_spike(measured(losses))

    assert number(finding, "first_update") == 501
    assert number(finding, "num_spikes") == 3


# -- diverging


def test_a_loss_that_rises_and_stays_is_diverging() -> None:
    losses = language_model()
    losses[700:] = [30 + random.Random(1).gauss(0, 1) for _ in losses[700:]]
    measurement = measured(losses)

    assert number(find_divergence(measurement), "first_update") == 701
    assert find_spike(measurement) is None


def test_a_loss_that_ends_far_above_its_start_did_not_come_back() -> None:
    losses = language_model()
    losses[500:503] = [200.0, 300.0, 200.0]
    losses[503:] = [140.0 + random.Random(t).gauss(0, 1) for t in range(len(losses) - 503)]
    measurement = measured(losses)

    assert number(find_divergence(measurement), "loss_last") > 100
    assert find_spike(measurement) is None


@pytest.mark.parametrize(
    ("state", "is_found"), [(RunState.FAILED, True), (RunState.FINISHED, False)]
)
def test_the_last_losses_before_an_error_tell_a_divergence(
    state: RunState, *, is_found: bool
) -> None:
    run = measured([1.2, 1.1, 1.3, 1.2] * 8 + [3.0, 69_012.0, 23_658.0])  # then OverflowError
    found = find_divergence(replace(run, end=ProcessEnd(state=state, exit_code=1)))

    assert (found is not None) is is_found


def test_losses_that_work_against_each_other_have_no_spike() -> None:
    losses = language_model()
    losses[600] += 30.0
    rows = [
        LossRow(number, place, 0, loss + place, None)
        for number, loss in enumerate(losses, start=1)
        for place in (0, 1)
    ]
    rounds = make_measurement(health=Health(num_seen=len(rows), curves=make_curves(rows)))

    assert len(rounds.health.curves) == 2  # type: ignore[union-attr]
    assert find_spike(rounds) is None
    assert find_spike(measured(losses)) is not None
    loops = (TrainingLoop(number=1, num_steps=9, first_step=0, last_step=8, total_s=1.0),)
    assert find_spike(replace(rounds, loops=loops * 2)) is not None  # trainings one by one


def test_a_loss_that_grows_faster_and_faster_is_diverging() -> None:
    rng = random.Random(1)
    losses = [2 * math.exp(t / 25) * (1 + 0.1 * rng.random()) for t in range(200)]

    assert number(find_divergence(measured(losses)), "growth") > 2


def test_a_loss_that_grows_in_proportion_is_not() -> None:
    losses = [0.01 + t / 100 + random.Random(t).gauss(0, 0.01) for t in range(400)]

    assert find_divergence(measured(losses)) is None


def test_growth_needs_every_part_of_the_last_quarter() -> None:
    assert find_growth([1.0] * 100) is None
    assert find_growth([float(t + 1) for t in range(100)]) == pytest.approx(96.5 / 78.5, rel=0.1)
    assert find_growth([1.0, 2.0]) is None


# -- flat


def test_a_constant_loss_is_flat_from_where_it_became_so() -> None:
    losses = [*language_model()[:300], *[2.302585] * 200]

    finding = find_flat_loss(measured(losses))

    assert number(finding, "first_update") in (300, 301)
    assert number(finding, "repeats_every") == 1
    assert finding is not None
    assert finding.severity is Severity.WARNING


def test_losses_that_come_again_each_epoch_are_flat() -> None:
    epoch = language_model()[:90]

    finding = find_flat_loss(measured(epoch * 4))

    assert number(finding, "first_update") == 1
    assert number(finding, "repeats_every") == 90


def test_a_loss_of_zero_is_worth_a_word_only() -> None:
    finding = find_flat_loss(measured([0.5, 0.1, *[0.0] * 200]))

    assert finding is not None
    assert finding.severity is Severity.INFO


@pytest.mark.parametrize("value", [2.296875, 0.100097656])
def test_losses_of_sixteen_bits_repeat_by_themselves(value: float) -> None:
    assert find_repeats([value] * 300) is None


def test_few_losses_are_not_flat() -> None:
    assert find_repeats([0.123456] * (MIN_REPEATED - 1)) is None
    assert find_repeats([0.123456] * (MIN_REPEATED + 1)) == (0, 1)
