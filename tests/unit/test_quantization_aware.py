"""The lever `quantization_aware`: what layers compute with while they train, and what stays."""

import pytest

torch = pytest.importorskip("torch")
nn = torch.nn

from steptime.levers import load  # noqa: E402
from steptime.levers.precision.quantization_aware import (  # noqa: E402
    NUM_CALIBRATED,
    RangeFollower,
    rounded_weight,
)
from steptime.testing.lever_session_double import PlainSession  # noqa: E402


def test_a_weight_has_255_values_an_output_and_the_gradient_of_itself():
    weight = torch.randn(3, 500, requires_grad=True)
    rounded = rounded_weight(torch, weight)

    for row, before in zip(rounded, weight, strict=True):
        step = before.abs().max() / 127
        assert torch.allclose(row / step, torch.round(row / step), atol=1e-4)
        assert (row - before).abs().max() <= step / 2 + 1e-6
    (rounded * torch.arange(500.0)).sum().backward()
    assert torch.equal(weight.grad[0], torch.arange(500.0))


def test_an_input_is_rounded_after_some_calls_and_clamped_to_what_was_seen():
    follower = RangeFollower()
    values = torch.linspace(-1, 3, 1000)
    for _ in range(NUM_CALIBRATED):
        assert follower.rounded(torch, values) is values
    given = torch.tensor([-0.99, 0.0, 1.234, 2.9, 400.0], requires_grad=True)
    found = follower.rounded(torch, given)

    assert found[1] == 0
    assert (found[:4] - given[:4]).abs().max() < 4 / 255
    assert found[4] < 10
    found.sum().backward()
    assert given.grad.tolist() == [1, 1, 1, 1, 0]


def test_a_model_trains_rounded_keeps_its_names_and_is_itself_in_evaluation():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3)
    )
    names = list(model.state_dict())
    x, y = torch.randn(64, 1, 8, 8), torch.randint(3, (64,))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    losses = []
    with PlainSession(torch) as session:
        undo = load("quantization_aware").apply({}, session)
        for _ in range(NUM_CALIBRATED + 30):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert session.counts["rounded_layer"] == 2
        assert losses[-1] < 0.2 < losses[0]
        assert list(model.state_dict()) == names
        with torch.no_grad():
            trained = model.train()(x)
            model.eval()
            plain = nn.functional.linear(model[:4](x), model[4].weight, model[4].bias)
            assert torch.equal(model(x), plain)
        assert trained.shape == plain.shape
        undo()
    assert all("forward" not in vars(one) for one in model.modules())
