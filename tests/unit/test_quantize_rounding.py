"""Equalized channels and better rounding: the same function, and less of an error in bytes."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxruntime")
nn = torch.nn

from steptime.quantize.calibrate import Calibrated, calibrate  # noqa: E402
from steptime.quantize.capture import capture  # noqa: E402
from steptime.quantize.integer.integer_network import build  # noqa: E402
from steptime.quantize.observers import observe  # noqa: E402
from steptime.quantize.rounding.round_weights import Rounding  # noqa: E402
from steptime.quantize.trained_network import Convolution, Matmul  # noqa: E402
from steptime.quantize.write_onnx import onnx_model  # noqa: E402
from unit.onnx_sessions import exact_session_of  # noqa: E402


def uneven():
    """Depthwise, in groups, pooled and flattened; channels that differ a thousandfold."""
    torch.manual_seed(0)
    model = nn.Sequential(
        *(nn.Conv2d(2, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=8), nn.ReLU()),
        *(nn.Conv2d(8, 12, 1, groups=4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(108, 16), nn.ReLU(), nn.Linear(16, 5)),
    ).eval()
    spread = 10 ** torch.linspace(-1.5, 1.5, 8)
    with torch.no_grad():  # what goes into each channel is divided out again by the next layer
        for at, factors, back in (
            (0, spread, spread.view(8, 1, 1, 1)),
            (2, spread, spread.view(4, 1, 2, 1, 1).expand(4, 3, 2, 1, 1).reshape(12, 2, 1, 1)),
            (4, spread[:6].repeat(2), spread[:6].repeat(2).repeat_interleave(9)),
            (8, spread.repeat(2), spread.repeat(2)),
        ):
            model[at].weight *= factors.view(-1, *(1,) * (model[at].weight.dim() - 1))
            model[at].bias *= factors
            after = next(each for each in model[at + 1 :] if hasattr(each, "weight"))
            after.weight /= back
    return model, torch.randn(100, 2, 8, 8).cumsum(2).cumsum(3) / 8


def error(model, inputs, integer):
    with torch.no_grad():
        wanted = model(inputs).numpy()
    return float(((integer.predict(inputs.numpy()) - wanted) ** 2).mean() / wanted.var())


def test_equalized_channels_compute_the_same_and_lose_less_in_bytes():
    model, inputs = uneven()
    found = calibrate(model, inputs, rounding=Rounding.NEAREST)

    with torch.no_grad():
        wanted = model(inputs).numpy()
    made = exact_session_of(onnx_model(found.network)).run(None, {"input": inputs.numpy()})[0]
    assert made == pytest.approx(wanted, rel=1e-3, abs=float(1e-4 * np.abs(wanted).max()))
    weights = [one for one in found.network.operators if isinstance(one, Convolution | Matmul)]
    assert len(weights) == 5

    network, program = capture(model, inputs[:2])
    before = error(model, inputs, build(network, observe(program, [inputs])))
    assert error(model, inputs, found.to_integers()[1]) < 0.05 * before < 1


def test_what_follows_twice_or_is_clamped_on_both_sides_keeps_its_channels():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x):
            x = self.a(x)
            return torch.nn.functional.hardtanh(self.b(x)) + self.c(x)

    model = nn.Sequential(Twice(), nn.Linear(4, 4), nn.ReLU6(), nn.Linear(4, 2)).eval()
    network, _ = capture(model, torch.randn(2, 4))
    found = calibrate(model, torch.randn(50, 4)).network
    for one, before in zip(found.operators, network.operators, strict=True):
        if isinstance(one, Matmul):
            assert (one.weight == before.weight).all()


@pytest.mark.parametrize("bits", [8, 4])
def test_each_way_of_rounding_errs_less_and_its_weights_are_those_of_bytes(bits):
    model, inputs = uneven()
    found = calibrate(model, inputs[:60])
    four = {one.output: 4 for one in found.network.operators if bits == 4}
    errors = []
    for rounding in Rounding:
        way = Calibrated(
            network=found.network, ranges=found.ranges, inputs=inputs[:60], rounding=rounding
        )
        network, integer = way.to_integers(four)
        assert all(
            (one.bias == other.bias).all() and (one.weight == other.weight).all()
            for one, other in zip(
                integer.operators, way.to_integers(four)[1].operators, strict=True
            )
            if hasattr(one, "bias")
        )
        errors.append(error(model, inputs[60:], integer))
        if rounding is Rounding.NEAREST or bits == 4:
            continue
        session = exact_session_of(onnx_model(network, integer))
        made = session.run(None, {"input": inputs.numpy()})[0]
        wanted = integer.predict(inputs.numpy())
        assert np.abs(made - wanted).max() < 0.02 * (wanted.max() - wanted.min())
    assert errors[1] < 0.9 * errors[0]
    assert errors[2] < (1.02 if bits == 8 else 0.8) * errors[1]
