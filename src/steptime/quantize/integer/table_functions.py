"""Functions that become tables of 256 bytes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from steptime.quantize.scheme import LOW, Affine

_ERF = np.vectorize(math.erf, otypes=[np.float64])
_FIXED: Mapping[str, Affine] = {
    "sigmoid": Affine(scale=1 / 256, zero=LOW),
    "hardsigmoid": Affine(scale=1 / 256, zero=LOW),
    "tanh": Affine(scale=1 / 128, zero=0),
}
"""Functions whose values lie between numbers that are known."""


def step_of_function(name: str) -> Affine | None:
    """Return the step of a function's values; None where they depend on its input."""
    return _FIXED.get(name)


def function_of(name: str, parameters: Sequence[float]) -> Callable[[Any], Any]:
    """Return a function of arrays of real numbers."""
    return lambda x: _FUNCTIONS[name](x, *parameters)


def _sigmoid(x: Any) -> Any:
    return 1.0 / (1.0 + np.exp(-x))


def _gelu(x: Any, is_by_tanh: float = 0.0) -> Any:
    if is_by_tanh:
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + _ERF(x / math.sqrt(2)))


_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "sigmoid": _sigmoid,
    "tanh": np.tanh,
    "gelu": _gelu,
    "silu": lambda x: x * _sigmoid(x),
    "hardswish": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "hardsigmoid": lambda x: np.clip(x + 3, 0, 6) / 6,
    "leaky_relu": lambda x, slope: np.where(x < 0, slope * x, x),
    "elu": lambda x: np.where(x < 0, np.expm1(x), x),
    "clamp": np.clip,
}
