"""How many numbers and bytes the constants of a network take."""

from __future__ import annotations

import math

from steptime.quantize.c.constant_arrays import arrays_of
from steptime.quantize.integer.float_layers import FloatLayer
from steptime.quantize.integer.integer_operators import IntegerOperator
from steptime.quantize.trained_network import (
    Constant,
    Contraction,
    Convolution,
    Lookup,
    Matmul,
    Network,
    Normalization,
    Operator,
    Recurrence,
)


def num_weights(one: Operator) -> int:
    """Return the number of weights that are multiplied."""
    if isinstance(one, Recurrence):
        return int(one.weight.size + one.hidden.size)
    return int(one.weight.size) if isinstance(one, Convolution | Matmul) else 0


def num_macs(one: Operator, network: Network) -> int:
    """Return the multiplications for one input by weights, or of two values where they meet."""
    shape = network.shapes[one.output]
    if isinstance(one, Contraction):
        return math.prod(shape) * network.shapes[one.inputs[0]][-1]
    return math.prod(shape[: 2 if isinstance(one, Convolution) else -1]) * num_weights(one)


def bytes_of(one: IntegerOperator) -> int:
    """Return the constants of an operator, as C has them; those of a float layer have 4 bytes."""
    import numpy as np

    if isinstance(one, FloatLayer):
        return 4 * floats_of(one.layer)
    kinds = [(np.dtype(kind.removesuffix("_t")), given) for kind, given in arrays_of(one).values()]
    return sum(kind.itemsize * np.asarray(given).size for kind, given in kinds)


def floats_of(one: Operator) -> int:
    """Return the numbers of an operator on floats."""
    if isinstance(one, Normalization):
        return 2 * one.weight.size
    if isinstance(one, Constant | Lookup):
        return one.values.size if isinstance(one, Constant) else one.weight.size
    num_rows = one.bias.size if isinstance(one, Convolution | Matmul | Recurrence) else 0
    return num_weights(one) + num_rows
