"""The lever `progressive_resolution`: which models see smaller images, and when no longer."""

from __future__ import annotations

import dataclasses

import pytest

torch = pytest.importorskip("torch")

from steptime.levers import load  # noqa: E402
from steptime.levers._smaller_images import made_smaller, size_at  # noqa: E402
from steptime.levers.examples import CPU, TEXT  # noqa: E402
from steptime.testing.lever_session_double import PlainSession  # noqa: E402

LEVER = load("progressive_resolution")
nn = torch.nn


@pytest.fixture
def session():
    with PlainSession(torch) as session:
        undo = LEVER.apply({"start": 0.5, "steps": 8}, session)
        yield session
        undo()


class Pictures(nn.Module):
    """A classifier of whatever size, or with a head of one size, or a segmentation."""

    def __init__(self, end="pooled"):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())
        self.end = {
            "pooled": nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5)),
            "fixed": nn.Sequential(nn.Flatten(), nn.Linear(4 * 32 * 32, 5)),
            "image": nn.Conv2d(4, 5, 1),
        }[end]
        self.seen = []

    def forward(self, x):
        self.seen.append(tuple(x.shape[2:]))
        return self.end(self.body(x))


def train(model, *, steps=10):
    torch.manual_seed(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.rand(4, 3, 32, 32)).square().mean().backward()
        optimizer.step()
    return [one.detach().clone() for one in model.state_dict().values()]


def test_images_grow_and_each_new_size_is_tried_beside_whole_ones(session):
    model = Pictures()
    train(model)

    sides = [one[0] for one in model.seen]
    # By the steps made, sides are due: 16, 18, 20, 22, 24, 26, 28, 30; then 32. Of these, sizes are
    # 16, 16, 16, 24, 24, 24, 32, 32.
    # A new size comes before the whole images of its first step.
    assert sides == [16, 32, 16, 16, 24, 32, 24, 24, 32, 32, 32, 32]
    assert session.counts == {"smaller_call": 4}


@pytest.mark.parametrize("end", ["fixed", "image"])
def test_a_model_for_one_size_or_one_that_gives_images_stays_bit_for_bit(end):
    def train_on(settings):
        torch.manual_seed(1)
        with PlainSession(torch) as session:
            undo = LEVER.apply(settings, session)
            states = train(Pictures(end))
            undo()
        return states, session.counts

    ours, counts = train_on({"start": 0.5, "steps": 8})
    plain, none = train_on({"start": 1.0, "steps": 1})
    assert counts == {"refused_size": 2}  # 16 and 24
    assert not none

    for one, other in zip(ours, plain, strict=True):
        assert torch.equal(one, other)


def test_a_picture_that_may_be_a_target_stays(session):
    class Losses(Pictures):
        def forward(self, x, masks):
            return super().forward(x).mean() + masks.mean()

    model = Losses()
    for _ in range(3):
        model(torch.rand(2, 3, 32, 32), masks=torch.rand(2, 1, 32, 32))

    assert set(model.seen) == {(32, 32)}


def test_an_evaluation_sees_whole_images(session):
    model = Pictures()
    train(model, steps=2)
    model.eval()
    model(torch.rand(2, 3, 32, 32))  # with gradients
    with torch.no_grad():
        model(torch.rand(2, 3, 32, 32))

    assert model.seen[-2:] == [(32, 32)] * 2


@pytest.mark.parametrize(
    "value",
    [
        torch.rand(2, 3, 16, 16),  # too small already
        torch.rand(2, 8, 64, 64),  # features
        torch.randint(9, (2, 3, 64, 64)),  # whole numbers
        torch.rand(2, 3, 64, 64, requires_grad=True),
        torch.rand(3, 64, 64),
    ],
)
def test_what_is_no_batch_of_images_is_called_as_it_is(session, value):
    class Sums(nn.Module):
        def __init__(self):
            super().__init__()
            self.factor = nn.Parameter(torch.ones(()))
            self.seen = []

        def forward(self, x):
            self.seen.append(x)
            return (x * self.factor).sum()

    model = Sums()
    model(value)
    model(value)

    assert all(one is value for one in model.seen)


def test_smaller_images_have_the_mean_and_nothing_is_done_to_the_scripts():
    images = torch.rand(2, 1, 64, 48)
    (small, label), more = made_smaller(torch, ((images, 3), {}), images.shape[2:], (32, 24))

    assert small.shape == (2, 1, 32, 24)
    assert small.mean() == pytest.approx(images.mean().item(), abs=0.01)
    assert images.shape == (2, 1, 64, 48)
    assert (label, more) == (3, {})


def test_sides_are_multiples_of_eight_and_no_longer_than_the_image():
    assert size_at((224, 100), 0.5) == (112, 48)
    assert size_at((28, 28), 0.25) == (16, 16)
    assert size_at((28, 28), 0.99) == (24, 24)
    assert size_at((224, 30), 1.0) == (224, 30)


def test_it_helps_hurts_or_does_not_apply():
    assert LEVER.applies(CPU) is None
    assert "no convolution" in LEVER.applies(dataclasses.replace(CPU, has_convolution=False))
    tokens = dataclasses.replace(TEXT, has_convolution=True)
    assert "tokens" in LEVER.applies(tokens)
    assert "compiles" in LEVER.applies(dataclasses.replace(CPU, uses_compile=True))
