"""Finds how much of the output's error each layer makes where it alone is in bytes.

In: the exported program, the network, ranges and inputs. Out: by the name of an operator's output,
the mean squared error of the network's output over its variance. The layers with the most noise are
those to keep wider.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from steptime.quantize.inference import outputs_of, session_of
from steptime.quantize.integer.recurrence import OUTPUTS
from steptime.quantize.observers import Range
from steptime.quantize.scheme import FLOAT, Affine, affine_of, weights_of
from steptime.quantize.trained_network import Convolution, Matmul, Network, Operator, Recurrence
from steptime.quantize.write_onnx import onnx_model


def layer_noise(
    network: Network,
    ranges: Mapping[str, Range],
    inputs: Any,
    *,
    bits: int = 8,
    kept: Mapping[str, int] = MappingProxyType({}),
) -> dict[str, float]:
    """Return the noise of each layer with weights, by the name of its output.

    Args:
        network: in floats.
        ranges: of each value.
        inputs: as in training (num_inputs, ...).
        bits: of the weights.
        kept: the bits of outputs that are wider than a byte, 32 of layers in floats.

    Raises:
        MissingExtraError: onnx or ONNX Runtime is not installed.
    """
    wanted = _run(network, inputs)
    spread = float(wanted.var()) or 1.0
    found = {}
    for one in network.operators:
        if isinstance(one, Convolution | Matmul | Recurrence):
            rounded: Any = replace(one, weight=_rounded(one.weight, bits))
            if kept.get(one.output) == FLOAT:
                found[one.output] = 0.0
                continue
            if isinstance(one, Recurrence):
                rounded = replace(rounded, hidden=_rounded(one.hidden, bits))
            others = tuple(rounded if each is one else each for each in network.operators)
            changed = replace(network, operators=others)
            step = _affine(one, ranges, kept.get(one.output, 8))
            made = _run(changed, inputs, kept={one.output: step})
            found[one.output] = float(((made - wanted) ** 2).mean()) / spread
    return found


def _rounded(weight: Any, bits: int) -> Any:
    found, scales = weights_of(weight, bits=bits)
    return found * scales.reshape(-1, *(1,) * (weight.ndim - 1))


def _affine(one: Operator, ranges: Mapping[str, Range], bits: int) -> Affine:
    return OUTPUTS if isinstance(one, Recurrence) else affine_of(ranges[one.output], bits)


def _run(network: Network, inputs: Any, kept: Mapping[str, Any] | None = None) -> Any:
    """Return the outputs of a network in floats, of which some values are kept in bytes."""
    model = onnx_model(network, kept=kept)
    return outputs_of(session_of(model), inputs)[0]
