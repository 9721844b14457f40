"""Operators on floats in a network of bytes: layers that are kept in floats, and what follows them.

They are of the reference and of ONNX alone; C has none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from steptime.quantize.integer.integer_operators import IntegerOperator, convolved
from steptime.quantize.scheme import Affine
from steptime.quantize.trained_network import Convolution, Matmul

if TYPE_CHECKING:
    from steptime.quantize.scheme import Bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatLayer(IntegerOperator):
    """A convolution or a linear layer that computes in floats.

    Attributes:
        layer: what it computes.
        before: how its input is kept.
    """

    layer: Convolution | Matmul
    before: Affine

    def run(self, *values: Bytes) -> Bytes:
        """Return the output (batch, ...) as floats of 32 bits."""
        numbers, layer = self.before.to_numbers(values[0]), self.layer
        if isinstance(layer, Convolution):
            sums = convolved(numbers, layer)
        else:
            sums = numbers @ layer.weight.T
        low = -np.inf if layer.low is None else layer.low
        high = np.inf if layer.high is None else layer.high
        return np.asarray(np.clip(sums + layer.bias, low, high).astype(np.float32))


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatRounding(IntegerOperator):
    """Floats that become whole numbers; `after` says how these are kept."""

    after: Affine

    def run(self, *values: Bytes) -> Bytes:
        """Return the output in the shape of its input."""
        return self.after.to_bytes(values[0])
