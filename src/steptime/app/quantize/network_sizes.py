"""How many numbers and bytes the constants of a network take."""

from __future__ import annotations

from steptime.quantize.trained_network import (
    Constant,
    Convolution,
    Elementwise,
    Lookup,
    Matmul,
    Normalization,
    Operator,
    Recurrence,
    Softmax,
)

_TABLES: dict[type[Operator], int] = {Elementwise: 256, Softmax: 4 * 256}


def num_weights(one: Operator) -> int:
    """Return the number of weights that are multiplied."""
    if isinstance(one, Recurrence):
        return int(one.weight.size + one.hidden.size)
    return int(one.weight.size) if isinstance(one, Convolution | Matmul) else 0


def _num_rows(one: Operator) -> int:
    return one.bias.size if isinstance(one, Convolution | Matmul | Recurrence) else 0


def bytes_of(one: Operator) -> int:
    """Return the constants of an operator on bytes."""
    if isinstance(one, Normalization):
        return 6 * one.weight.size  # a weight of 16 bits and a bias of 32
    if isinstance(one, Lookup):
        return one.weight.size
    if isinstance(one, Constant | Elementwise | Softmax):
        return _TABLES.get(type(one), 0) or one.values.size  # type: ignore[union-attr]
    own = 5 if isinstance(one, Recurrence) else 0  # the fraction of its own output before
    return num_weights(one) + (9 + own) * _num_rows(one)


def floats_of(one: Operator) -> int:
    """Return the numbers of an operator on floats."""
    if isinstance(one, Normalization):
        return 2 * one.weight.size
    if isinstance(one, Constant | Lookup):
        return one.values.size if isinstance(one, Constant) else one.weight.size
    return num_weights(one) + _num_rows(one)
