"""Times mixes by ONNX Runtime, and predicts the time of those that were not timed.

Prediction: the time of the network of bytes, and what each layer's other form and each border
between forms add to it. These costs are fitted by least squares to networks that were timed once:
in bytes, with one layer in another form, in floats, and with one layer in bytes.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any

from steptime.app.quantize.mixed_network import Mix
from steptime.quantize.inference import time_in_turns
from steptime.quantize.scheme import FLOAT, WIDE
from steptime.quantize.trained_network import Requantization
from steptime.quantize.wider_values import LAYERS

_LEAST_ROUNDS, _MOST_ROUNDS, _TIMING_S = 20, 200, 20.0
_KIB = 1024


def measure_latencies(mixes: Sequence[Mix], x: Any) -> list[float]:
    """Return medians of CPU time [ms] of mixes that take turns with one input each of `x`.

    A few rounds say how many more fit into some twenty seconds.
    """
    models = {str(i): one.in_onnx() for i, one in enumerate(mixes)}
    timed = partial(time_in_turns, models, x, clock=time.thread_time, is_warm=True)
    once = timed(rounds=_LEAST_ROUNDS)
    each_s = sum(one.median_ms for one in once) / 1e3
    rounds = min(_MOST_ROUNDS, max(_LEAST_ROUNDS, int(_TIMING_S / max(2 * each_s, 1e-9))))
    return [one.median_ms for one in timed(rounds=rounds)]


def predict_latencies(start: Mix, mixes: Sequence[Mix], x: Any) -> list[float]:
    """Return the predicted latency of each mix [ms].

    Args:
        start: the network of bytes.
        mixes: the same with layers in other forms.
        x: inputs (num_inputs, ...).
    """
    import numpy as np

    outputs = [one.output for one in start.layers]
    in_floats = start.with_bits(dict.fromkeys(outputs, FLOAT))
    timed = [start, in_floats]
    for name in outputs:
        timed += [start.moved(name, FLOAT), in_floats.moved(name, 8), start.moved(name, WIDE)]
    facts = np.array([_facts(one, outputs) for one in timed])
    times = np.array(measure_latencies(timed, x))
    costs = np.linalg.lstsq(facts, times, rcond=None)[0]
    return [float(np.array(_facts(one, outputs)) @ costs) for one in mixes]


def _facts(mix: Mix, outputs: Sequence[str]) -> list[float]:
    """Return what costs time: the network, each layer's form, and the borders between forms."""
    forms = [float(mix.bits.get(name) == bits) for name in outputs for bits in (WIDE, FLOAT)]
    network, sizes = mix.made()[0], list[int]()
    bits = network.bits
    for one in network.operators:
        is_float = isinstance(one, LAYERS) and bits.get(one.output) == FLOAT
        is_read = is_float and bits.get(one.inputs[0], 8) < FLOAT
        if is_read or isinstance(one, Requantization):
            sizes.append(prod(network.shapes[one.inputs[0]]))
    return [1.0, *forms, float(len(sizes)), sum(sizes) / _KIB]
