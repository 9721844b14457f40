"""Levers that change the training: what each does to an unmodified one."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from steptime.levers import load  # noqa: E402
from steptime.methods import gradients  # noqa: E402
from steptime.testing.lever_session_double import PlainSession  # noqa: E402
from steptime.testing.training import Training  # noqa: E402


@pytest.fixture
def session():
    with PlainSession(torch) as session:
        yield session


@pytest.mark.parametrize(
    ("name", "transform"),
    [("znorm", gradients.ZNorm()), ("clip_adaptive", gradients.ClipAdaptive())],
)
def test_a_transform_acts_as_if_the_script_had_attached_it(session, name, transform):
    own = Training(torch)
    gradients.attach(own.optimizer, transform)
    expected = own.steps(4)

    undo = load("gradient_transform").apply({"transform": name}, session)
    assert Training(torch).steps(4) == expected
    undo()
    assert Training(torch).steps(4) == Training(torch).steps(4) != expected


def test_the_rate_is_multiplied_in_each_step_and_the_script_sees_its_own(session):
    def train(*, factor=1.0):
        training = Training(torch)
        schedule = torch.optim.lr_scheduler.StepLR(training.optimizer, 1, gamma=0.5)
        for group in training.groups:
            group["initial_lr"], group["lr"] = 1e-3 * factor, 1e-3 * factor
        schedule.base_lrs = [1e-3 * factor]
        found = []
        for _ in range(4):
            found += training.steps(1)
            schedule.step()
        return found, training.groups[0]["lr"]

    expected, _ = train(factor=3.0)
    undo = load("rate_factor").apply({"factor": 3.0}, session)
    losses, rate = train()
    undo()

    assert losses == pytest.approx(expected, rel=1e-6)
    assert rate == pytest.approx(1e-3 * 0.5**4)
    assert train()[0] != losses
