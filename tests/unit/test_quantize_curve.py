"""The curve of a network whose layers have different forms."""

import pytest

pytest.importorskip("torch")
pytest.importorskip("onnxruntime")

from steptime.app.quantize import curve, latency
from steptime.app.quantize.evaluation import Evaluation
from steptime.app.quantize.mixed_network import Mix
from steptime.quantize.calibrate import Calibrated
from steptime.quantize.capture import capture
from steptime.quantize.observers import observe
from steptime.quantize.rounding.round_weights import Rounding
from unit.test_quantize_parts import made

COSTS_MS = {4: 0.0, 8: 0.0, 16: 2.0, 32: -0.5}


def fake_latencies(mixes, x):
    """Each layer has a cost that its place and its form decide."""
    return [
        9 + sum((i + 1) * COSTS_MS[one.bits.get(each.output, 8)]
                for i, each in enumerate(one.layers))
        for one in mixes
    ]  # fmt: skip


@pytest.fixture(scope="module")
def start():
    model, inputs, network, _ = made("residual")
    ranges = observe(capture(model, inputs[:2])[1], inputs.split(50))
    given = {"network": network, "ranges": ranges, "inputs": inputs.numpy()}
    calibrated = Calibrated(**given, rounding=Rounding.NEAREST)
    return Mix(calibrated=calibrated), inputs.numpy()


def test_latency_of_a_mix_is_predicted_from_networks_with_one_other_layer(start, monkeypatch):
    monkeypatch.setattr(latency, "measure_latencies", fake_latencies)
    start, x = start
    outputs = [one.output for one in start.layers]
    mixes = [
        start.with_bits(dict(zip(outputs, bits, strict=False)))
        for bits in ([32, 32], [16, 8, 32], [32, 16, 8, 16, 32], [4, 4, 32])
    ]
    assert latency.predict_latencies(start, mixes, x) == pytest.approx(fake_latencies(mixes, x))


def test_no_point_of_a_curve_is_beaten_and_those_that_pass_are_found(start, monkeypatch):
    for room in (curve, latency):
        monkeypatch.setattr(room, "measure_latencies", fake_latencies)
    start, x = start
    floats = start.with_bits({one.output: 32 for one in start.layers}).integer.predict(x)
    rows = Evaluation(x=x, y=floats, metric="squared_error", margin=1.0, floats=floats)
    points, passing, rank_correlation = curve.mix_curve(start, x[:20], rows, needs_pass=True)

    assert rank_correlation == pytest.approx(1.0)
    assert len(points) >= 6
    sizes = [one.num_bytes for one in points]
    assert sizes == sorted(sizes, reverse=True)
    for one in points:
        for other in points:
            assert one is other or (
                one.num_bytes < other.num_bytes
                or one.metric < other.metric
                or one.predicted_ms < other.predicted_ms
            )
    assert passing is not None
    assert not passing.in_four_bits
    assert points[-1].in_four_bits


def test_a_walk_begins_with_what_takes_most_noise_away_for_a_byte(start):
    start, x = start
    noise = curve._noises(start, x[:20])
    sizes = {bits: curve._sizes(start, bits) for bits in (8, 16)}
    first = next(curve._walk(start, noise, sizes, (16,)))
    gains = {
        one.output: (noise[8][one.output] - noise[16][one.output])
        / (sizes[16][one.output] - sizes[8][one.output])
        for one in start.layers
    }
    assert first.bits == {max(gains, key=gains.get): 16}
