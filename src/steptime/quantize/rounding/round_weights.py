"""Rounds the weights of each layer so that its sums err least on calibration rows.

Layer by layer, with what bytes have made of the rows so far, and the sums that floats give. A bias
takes what the sums of its channel err by on average. By choice each weight goes to the one of its
two neighbors with which the squares of the errors are least, weight by weight in several rounds.
The result is a network in floats whose weights have bytes without a rest.

Source: M. Nagel et al., ICCV 2019, section 4.2 (biases), and ICML 2020 (AdaRound: what is to be
least); K. Behdin et al., QuantEase, arXiv 2309.01885 (one weight after the other).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import Enum
from typing import Any

import numpy as np

from steptime.quantize.inference import outputs_of, session_of
from steptime.quantize.integer.float_layers import FloatLayer
from steptime.quantize.integer.integer_network import build
from steptime.quantize.integer.integer_operators import IntegerOperator, windows
from steptime.quantize.observers import Range
from steptime.quantize.scheme import weights_of
from steptime.quantize.trained_network import Convolution, Matmul, Network, Operator
from steptime.quantize.write_onnx import onnx_model, sums_of

_ROWS, _PART = 256, 32
_PLACES = 4096
"""Sums of a channel that are looked at, over all rows."""
_MOST_WEIGHTS = 4096
"""Of a sum; of layers with more, biases alone are corrected, for the time grows with the square."""
_ROUNDS = 4
_TRUST = 0.01
"""How much the weights of training count, over the mean square of an input (as GPTQ's damping)."""


class Rounding(str, Enum):
    """How weights and biases are rounded."""

    NEAREST = "nearest"
    CORRECTED = "corrected"
    ADAPTIVE = "adaptive"


def rounded(
    network: Network,
    ranges: Mapping[str, Range],
    inputs: Any,
    rounding: Rounding,
    *,
    in_four_bits: frozenset[str] = frozenset(),
    tell: Callable[[str], None] = lambda _: None,
) -> Network:
    """Return a network whose weights are those that bytes can have.

    Args:
        network: in floats.
        ranges: of each value that has a step of its own.
        inputs: as in training (num_inputs, ...); of many, some are drawn with a seed of 0.
        rounding: how.
        in_four_bits: outputs of layers whose weights have four bits.
        tell: called with a line now and then.

    Raises:
        DataError: a value is 0 for each input.
        UsageError: a sum does not fit into 32 bits.
        MissingExtraError: onnx or ONNX Runtime is not installed.
    """
    if rounding is Rounding.NEAREST:
        return network
    chance = np.random.default_rng(0)
    inputs = np.asarray(inputs)
    rows = np.sort(chance.permutation(len(inputs))[:_ROWS])
    layers = {one.output: one for one in network.operators if isinstance(one, Convolution | Matmul)}
    places = {name: _places(network, name, len(rows), chance) for name in layers}
    wanted = _float_sums(network, inputs[rows], places)
    integer = build(network, ranges, in_four_bits=in_four_bits)
    values = {network.input: integer.to_bytes(inputs[rows])}
    made: list[Operator] = []
    for number, (one, op) in enumerate(zip(network.operators, integer.operators, strict=True)):
        if isinstance(one, Convolution | Matmul) and not isinstance(op, FloatLayer):
            tell(f"rounding layer {number + 1} of {len(network.operators)}: `{one.name}`")
            step = integer.steps[one.inputs[0]]
            given = _taken(one, values[one.inputs[0]], places[one.output], step.zero) * step.scale
            bits = 4 if one.output in in_four_bits else 8
            layer, whole, scales = _fitted(one, given, wanted[one.output], bits, rounding)
            bias = np.rint(layer.bias / (step.scale * scales)).astype(np.int64)
            op_now: IntegerOperator = replace(op, weight=whole, bias=bias)  # type: ignore[call-arg]
            made.append(layer)
        else:
            op_now = op
            made.append(one)
        values[op.output] = _run(op_now, [values[name] for name in op.inputs])
    return replace(network, operators=tuple(made))


def _places(network: Network, name: str, num_rows: int, chance: Any) -> Any:
    """Return places of an output (num_rows, num_places), drawn; all channels of them are taken."""
    num = int(np.prod(network.shapes[name][:-1], dtype=np.int64))
    return chance.integers(num, size=(num_rows, min(num, max(1, _PLACES // num_rows))))


def _float_sums(network: Network, inputs: Any, places: Mapping[str, Any]) -> dict[str, Any]:
    """Return what layers give in floats before their clamps, (num_places, num_channels)."""
    session = session_of(onnx_model(network, sums=tuple(places)))
    found: dict[str, list[Any]] = {name: [] for name in places}
    for begin in range(0, len(inputs), _PART):
        part = slice(begin, begin + _PART)
        made = outputs_of(session, inputs[part], [sums_of(name) for name in places])
        for name, sums in zip(places, made, strict=True):
            last = sums.transpose(0, 2, 3, 1) if name in network.pictures else sums
            rows = last.reshape(len(last), -1, last.shape[-1])
            taken = np.take_along_axis(rows, places[name][part][:, :, None], axis=1)
            found[name].append(taken.reshape(-1, rows.shape[-1]).astype(np.float64))
    return {name: np.concatenate(parts) for name, parts in found.items()}


def _taken(one: Convolution | Matmul, values: Any, places: Any, zero: int) -> Any:
    """Return what sums are made of, at places: (groups, num_places, num_weights)."""
    moved = values.astype(np.float64) - zero
    if isinstance(one, Matmul):
        moved = moved.reshape(len(moved), -1, moved.shape[-1])
        return np.take_along_axis(moved, places[:, :, None], axis=1).reshape(1, -1, moved.shape[-1])
    top, bottom, left, right = one.padding
    found = []
    for row, at in zip(moved, places, strict=True):
        padded = np.pad(row[None], ((0, 0), (top, bottom), (left, right), (0, 0)))
        parts = windows(padded, one.weight.shape[1:3], one.stride, one.dilation)[0]
        found.append(parts[at // parts.shape[1], at % parts.shape[1]])
    parts = np.concatenate(found)  # (num_places, height, width, channels)
    split = parts.reshape(*parts.shape[:3], one.groups, -1)
    return split.transpose(3, 0, 1, 2, 4).reshape(one.groups, len(parts), -1)


def _fitted(
    one: Any, given: Any, wanted: Any, bits: int, rounding: Rounding
) -> tuple[Any, Any, Any]:
    """Return a layer with weights that bytes can have, these bytes, and the scale of each output.

    Args:
        one: the layer.
        given: what its weights are multiplied with (groups, num_places, num_weights).
        wanted: its sums (num_places, num_outputs).
        bits: of its weights.
        rounding: how.
    """
    whole, scales = weights_of(one.weight, bits=bits)
    flat, num = whole.reshape(len(whole), -1).astype(np.float64), len(whole) // len(given)
    sums = np.empty_like(wanted)
    for group, parts in enumerate(given):
        own = slice(group * num, (group + 1) * num)
        if rounding is Rounding.ADAPTIVE and parts.shape[1] <= _MOST_WEIGHTS:
            exact = one.weight[own].reshape(num, -1)
            target = wanted[:, own]
            flat[own] = _least_squares(parts, target, exact, flat[own], scales[own], bits)
        sums[:, own] = parts @ (flat[own] * scales[own, None]).T
    bias = (wanted - sums).mean(axis=0)
    found = flat.reshape(whole.shape)
    steps = scales.reshape(-1, *(1,) * (found.ndim - 1))
    return replace(one, weight=found * steps, bias=bias), found.astype(np.int8), scales


def _least_squares(given: Any, wanted: Any, exact: Any, whole: Any, scales: Any, bits: int) -> Any:
    """Return weights (num_outputs, num_weights) of whole numbers, each beside its exact value.

    Args:
        given: what they are multiplied with (num_places, num_weights).
        wanted: the sums (num_places, num_outputs).
        exact: the weights (num_outputs, num_weights).
        whole: the nearest whole numbers; the largest of a row stay, for they make its scale.
        scales: of each output (num_outputs,).
        bits: of the weights.
    """
    moved = given - given.mean(axis=0)
    matrix = moved.T @ moved / len(given)
    trust = _TRUST * float(np.diag(matrix).mean()) + 1e-12
    matrix[np.diag_indices_from(matrix)] += trust
    target = moved.T @ (wanted - wanted.mean(axis=0)) / len(given) + trust * exact.T
    found, steps = whole.T.copy(), scales
    low, high = np.floor(exact / scales[:, None]).T, np.ceil(exact / scales[:, None]).T
    is_end = np.abs(found) >= 2 ** (bits - 1) - 1
    low, high = np.where(is_end, found, low), np.where(is_end, found, high)
    slope = matrix @ (found * steps) - target
    for _ in range(_ROUNDS):
        changed = False
        for i in range(len(found)):
            best = np.clip(np.rint(found[i] - slope[i] / (matrix[i, i] * steps)), low[i], high[i])
            (other,) = np.nonzero(best != found[i])
            if len(other):
                moves = (best[other] - found[i, other]) * steps[other]
                slope[:, other] += np.outer(matrix[:, i], moves)
                found[i], changed = best, True
        if not changed:
            break
    return found.T


def _run(op: IntegerOperator, values: list[Any]) -> Any:
    """Return what an operator makes of values, some rows at a time; a constant has but one."""
    num = max((len(one) for one in values), default=1)
    parts = [
        op.run(*(one if len(one) == 1 else one[begin : begin + _PART] for one in values))
        for begin in range(0, num, _PART)
    ]
    return np.concatenate(parts)
