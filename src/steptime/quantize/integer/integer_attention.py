"""What transformers have, on bytes: matmuls of two values, softmax and layer normalization.

Exponentials come from a table, for the input is a byte: that of the largest less d is entry d. A
layer normalization takes the square root of the variance in whole numbers.

Source of both: S. Kim, A. Gholami, Z. Yao, M. W. Mahoney, K. Keutzer, I-BERT, ICML 2021.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from steptime.quantize.integer.integer_operators import IntegerOperator
from steptime.quantize.scheme import HIGH, LOW, Affine, fraction_of, scaled
from steptime.quantize.trained_network import Normalization, Softmax

if TYPE_CHECKING:
    from steptime.quantize.scheme import Bytes, Wide

SHARES = Affine(scale=1 / 256, zero=LOW)
"""Of a softmax: 0 to 255 of 256."""

_EXP_BITS = 16
_NORM_BITS, _ROOT_BITS = 12, 8
_MOST_WEIGHT = 2**12 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegerConstant(IntegerOperator):
    """Bytes that are the same for each input."""

    values: Bytes

    def run(self, *values: Bytes) -> Bytes:
        """Return the bytes with a batch of one."""
        return self.values[None]


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegerAxisPart(IntegerOperator):
    """What lies between two places of an axis."""

    axis: int
    begin: int
    end: int
    bits: int = 8

    def run(self, *values: Bytes) -> Bytes:
        """Return the output."""
        places = [slice(None)] * (self.axis + 1) + [slice(self.begin, self.end)]
        return np.ascontiguousarray(values[0][tuple(places)])


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegerContraction(IntegerOperator):
    """The matmul of two values over the last axis of the first."""

    is_turned: bool
    zeros: tuple[int, int]
    multiplier: int
    shift: int
    zero_out: int

    def run(self, *values: Bytes) -> Bytes:
        """Return the output (batch, ..., m, n)."""
        a, b = (one.astype(np.float64) - zero for one, zero in zip(values, self.zeros, strict=True))
        sums = np.rint(a @ (b.swapaxes(-1, -2) if self.is_turned else b)).astype(np.int64)
        found = scaled(sums, self.multiplier, self.shift) + self.zero_out
        return np.asarray(np.clip(found, LOW, HIGH).astype(np.int8))


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegerSoftmax(IntegerOperator):
    """A softmax over the last axis; `table` has exp(-d) of each distance d from the largest."""

    table: Wide
    is_causal: bool

    def run(self, *values: Bytes) -> Bytes:
        """Return the output (batch, ..., num)."""
        given = values[0].astype(np.int64)
        counts = np.ones(given.shape[-2:], dtype=bool)
        if self.is_causal:
            counts = np.tril(counts)
        most = np.where(counts, given, LOW).max(axis=-1, keepdims=True)
        powers = np.where(counts, self.table[np.maximum(most - given, 0)], 0)
        whole = powers.sum(axis=-1, keepdims=True)
        found = (powers * 256 + whole // 2) // whole
        return np.asarray((np.minimum(found, 255) + LOW).astype(np.int8))


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegerNormalization(IntegerOperator):
    """A layer normalization over the last axis.

    Attributes:
        weight: (num,) whole numbers of 13 bits.
        bias: (num,) at the step of a normalized number times a weight.
        added: what is added to the variance of sums.
        multiplier, shift: the fraction to the step of the output.
    """

    weight: Wide
    bias: Wide
    added: int
    multiplier: int
    shift: int
    zero_out: int

    def run(self, *values: Bytes) -> Bytes:
        """Return the output (batch, ..., num)."""
        given = values[0].astype(np.int64)
        num = given.shape[-1]
        moved = num * given - given.sum(axis=-1, keepdims=True)
        variance = (moved**2).sum(axis=-1, keepdims=True) // num + self.added
        root = np.maximum(_square_root(variance << (2 * _ROOT_BITS)), 1)
        size = (2 * (np.abs(moved) << (_NORM_BITS + _ROOT_BITS)) + root) // (2 * root)
        whole = np.sign(moved) * size * self.weight + self.bias
        found = scaled(whole, self.multiplier, self.shift) + self.zero_out
        return np.asarray(np.clip(found, LOW, HIGH).astype(np.int8))


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegerAxisMean(IntegerOperator):
    """The mean of a sequence over its steps; `zero` is the byte of 0 on both sides."""

    zero: int

    def run(self, *values: Bytes) -> Bytes:
        """Return the output (batch, num)."""
        sums, num = (values[0].astype(np.int64) - self.zero).sum(axis=1), values[0].shape[1]
        found = np.sign(sums) * ((2 * np.abs(sums) + num) // (2 * num)) + self.zero
        return np.asarray(np.clip(found, LOW, HIGH).astype(np.int8))


def _square_root(values: Wide) -> Wide:
    """Return the largest whole numbers whose squares are not above the values."""
    found = np.sqrt(values.astype(np.float64)).astype(np.int64)
    found -= found * found > values
    return np.asarray(found + ((found + 1) * (found + 1) <= values))


def softmax_of(one: Softmax, base: dict[str, Any], before: Affine) -> IntegerSoftmax:
    """Return a softmax of bytes that are kept as `before` says."""
    distances = np.arange(256) * before.scale * one.factor
    table = np.rint(np.exp(-distances) * 2**_EXP_BITS).astype(np.int64)
    return IntegerSoftmax(**base, table=table, is_causal=one.is_causal)


def normalization_of(
    one: Normalization, base: dict[str, Any], before: Affine, after: Affine
) -> IntegerNormalization:
    """Return a layer normalization from bytes to bytes."""
    num = len(one.weight)
    scale = (float(np.abs(one.weight).max()) or 1.0) / _MOST_WEIGHT
    step = scale * 2.0**-_NORM_BITS
    multiplier, shift = fraction_of(step / after.scale)
    return IntegerNormalization(
        **base,
        weight=np.rint(one.weight / scale).astype(np.int64),
        bias=np.rint(one.bias / step).astype(np.int64),
        added=math.ceil(num**2 * one.epsilon / before.scale**2),
        multiplier=multiplier,
        shift=shift,
        zero_out=after.zero,
    )
