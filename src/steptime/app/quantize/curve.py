"""The curve of size against the metric, with more and more layers whose weights have four bits.

Layers go to four bits in the order of the noise that this makes for each byte that it saves. The
kernels in C keep a byte for each weight, so these points are of the reference alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from steptime.app.quantize.network_sizes import bytes_of, num_weights
from steptime.quantize.calibrate import Calibrated
from steptime.quantize.layer_noise import layer_noise
from steptime.quantize.trained_network import Convolution, Matmul
from steptime.quantize.values.quantized_model import SizePoint

_MOST_POINTS = 9


def size_curve(
    calibrated: Calibrated,
    inputs: Any,
    score: Callable[[Any], float],
    *,
    is_better_down: bool,
) -> tuple[SizePoint, ...]:
    """Return the points that no other one beats in both, the largest first.

    Args:
        calibrated: what the networks are made of.
        inputs: from which the noise of each layer is taken (num_inputs, ...).
        score: gives the metric of an integer network.
        is_better_down: whether less of the metric is better.
    """
    network = calibrated.network
    noise = layer_noise(network, calibrated.ranges, inputs, bits=4)
    layers = [one for one in network.operators if isinstance(one, Convolution | Matmul)]
    layers.sort(key=lambda one: noise[one.output] / num_weights(one))
    whole, points = sum(bytes_of(one) for one in network.operators), list[SizePoint]()
    wanted = {round(i * len(layers) / (_MOST_POINTS - 1)) for i in range(_MOST_POINTS)}
    for num in sorted(wanted):
        taken = layers[:num]
        _, integer = calibrated.to_integers(frozenset(one.output for one in taken))
        points.append(
            SizePoint(
                num_bytes=whole - sum(num_weights(one) // 2 for one in taken),
                metric=score(integer),
                in_four_bits=tuple(one.name for one in taken),
            )
        )
    sign = -1.0 if is_better_down else 1.0
    return tuple(
        one
        for one in points
        if not any(
            other.num_bytes < one.num_bytes and sign * other.metric >= sign * one.metric
            for other in points
        )
    )
