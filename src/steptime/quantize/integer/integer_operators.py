"""Operators on bytes, as the reference for everything that is exported.

Each takes arrays (batch, ...) of signed bytes and returns one; some also take and return 16 bits,
and what only moves numbers takes floats. Sums of products are made by a
matmul of 64-bit floats, which is exact here: they stay below 2 ** 53.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from steptime.quantize.scheme import FLOAT, HIGH, LOW, clamped, ends_of, scaled, shifted

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from steptime.quantize.scheme import Bytes
    from steptime.quantize.trained_network import Convolution, Shape

    Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegerOperator:
    """An operator on bytes.

    Attributes:
        name: the path of its module.
        inputs, output: names of values.
        shape: of the output, without the batch.
    """

    name: str
    inputs: tuple[str, ...]
    output: str
    shape: Shape

    def run(self, *values: Bytes) -> Bytes:
        """Return the output (batch, *shape) of inputs (batch, ...)."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class _Weighted(IntegerOperator):
    """An operator with weights; what it sums becomes a byte of the output's step.

    Attributes:
        weight: signed bytes, the outputs first.
        bias: (num_outputs,) at the step of the sums.
        multipliers, shifts: the fraction of each output (num_outputs,).
        zero_in, zero_out: the zeros of both sides.
        bits_in, bits_out: of the numbers on both sides.
        low, high: numbers to which the output is clamped.
    """

    weight: Bytes
    bias: Ints
    multipliers: Ints
    shifts: Ints
    zero_in: int
    zero_out: int
    low: int = LOW
    high: int = HIGH
    bits_in: int = 8
    bits_out: int = 8

    def finish(self, sums: Any) -> Bytes:
        """Return sums (..., num_outputs) in the bits of the output."""
        whole = np.rint(sums).astype(np.int64) + self.bias
        found = scaled(whole, self.multipliers, self.shifts) + self.zero_out
        return clamped(found, self.bits_out, self.low, self.high)


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegerConvolution(_Weighted):
    """A convolution of pictures; weight (num_outputs, height, width, num_inputs / groups)."""

    stride: tuple[int, int]
    padding: tuple[int, int, int, int]
    dilation: tuple[int, int]
    groups: int

    def run(self, *values: Bytes) -> Bytes:
        """Return the output (batch, height, width, num_outputs)."""
        return self.finish(convolved(values[0].astype(np.float64) - self.zero_in, self))


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegerLinear(_Weighted):
    """A matmul over the last axis; weight (num_outputs, num_inputs)."""

    def run(self, *values: Bytes) -> Bytes:
        """Return the output (batch, ..., num_outputs)."""
        moved = values[0].astype(np.float64) - self.zero_in
        return self.finish(moved @ self.weight.astype(np.float64).T)


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegerAddition(IntegerOperator):
    """A sum: `(a - zero_a) * factor_a + (b - zero_b) * factor_b`, less `shift` bits."""

    zeros: tuple[int, int]
    factors: tuple[int, int]
    shift: int
    zero_out: int
    low: int = LOW
    high: int = HIGH
    bits_in: tuple[int, int] = (8, 8)
    bits_out: int = 8

    def run(self, *values: Bytes) -> Bytes:
        """Return the output of two inputs of its shape."""
        whole = np.zeros(values[0].shape, dtype=np.int64)
        for value, zero, factor in zip(values, self.zeros, self.factors, strict=True):
            whole += (value.astype(np.int64) - zero) * factor
        found = shifted(whole, np.int64(self.shift)) + self.zero_out
        return clamped(found, self.bits_out, self.low, self.high)


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegerMultiplication(IntegerOperator):
    """A product of two values, the second of which may have ones in its shape."""

    zeros: tuple[int, int]
    multiplier: int
    shift: int
    zero_out: int

    def run(self, *values: Bytes) -> Bytes:
        """Return the output of the larger shape."""
        a, b = (one.astype(np.int64) - zero for one, zero in zip(values, self.zeros, strict=True))
        found = scaled(a * b, self.multiplier, self.shift) + self.zero_out
        return np.asarray(np.clip(found, LOW, HIGH).astype(np.int8))


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegerPooling(IntegerOperator):
    """The largest or the mean of windows; `zero` is the number of 0 on both sides."""

    is_mean: bool
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int, int, int]
    counts_padding: bool
    zero: int
    bits: int = 8

    def run(self, *values: Bytes) -> Bytes:
        """Return the output (batch, height, width, channels)."""
        is_float = self.bits == FLOAT
        moved = values[0].astype(np.float64 if is_float else np.int64) - self.zero
        top, bottom, left, right = self.padding
        edges = ((0, 0), (top, bottom), (left, right), (0, 0))
        least = -np.inf if is_float else ends_of(self.bits)[0] - self.zero
        outside = 0 if self.is_mean else least
        padded = np.pad(moved, edges, constant_values=outside)
        parts = windows(padded, self.kernel, self.stride, (1, 1))
        if not self.is_mean:
            return np.asarray((parts.max(axis=(3, 4)) + self.zero).astype(values[0].dtype))
        sums = parts.sum(axis=(3, 4))
        if self.counts_padding:
            counts = np.full((1, *sums.shape[1:3], 1), self.kernel[0] * self.kernel[1])
        else:
            ones = np.pad(np.ones_like(moved[:1, :, :, :1]), edges)
            counts = windows(ones, self.kernel, self.stride, (1, 1)).sum(axis=(3, 4))
        if is_float:
            return np.asarray((sums / counts).astype(np.float32))
        sign = np.where(sums < 0, -1, 1)
        found = sign * ((2 * np.abs(sums) + counts) // (2 * counts)) + self.zero
        return clamped(found, self.bits)


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegerConcatenation(IntegerOperator):
    """Values one after the other, each brought to the output's step; or one that is rounded."""

    axis: int
    bits_in: tuple[int, ...]
    zeros: tuple[int, ...]
    multipliers: tuple[int, ...]
    shifts: tuple[int, ...]
    zero_out: int

    def run(self, *values: Bytes) -> Bytes:
        """Return the output."""
        parts = []
        for value, zero, multiplier, shift in zip(
            values, self.zeros, self.multipliers, self.shifts, strict=True
        ):
            whole = scaled(value.astype(np.int64) - zero, multiplier, shift) + self.zero_out
            parts.append(clamped(whole, 8))
        return np.concatenate(parts, axis=self.axis + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegerTable(IntegerOperator):
    """A function of each byte: `table` has the result of -128 first, of 127 last."""

    table: Bytes

    def run(self, *values: Bytes) -> Bytes:
        """Return the output."""
        return np.asarray(self.table[values[0].astype(np.int64) - LOW])


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegerReorder(IntegerOperator):
    """The axes in another order."""

    axes: tuple[int, ...]
    bits: int = 8

    def run(self, *values: Bytes) -> Bytes:
        """Return the output."""
        return np.ascontiguousarray(values[0].transpose(0, *(axis + 1 for axis in self.axes)))


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegerSelection(IntegerOperator):
    """The part at one index of the first axis."""

    index: int
    bits: int = 8

    def run(self, *values: Bytes) -> Bytes:
        """Return the output."""
        return np.ascontiguousarray(values[0][:, self.index])


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegerReshape(IntegerOperator):
    """The same bytes in another shape."""

    def run(self, *values: Bytes) -> Bytes:
        """Return the output."""
        return values[0].reshape(len(values[0]), *self.shape)


def convolved(moved: Any, by: IntegerConvolution | Convolution) -> Any:
    """Return the sums (batch, height, width, num_outputs) of a convolution, without a bias."""
    top, bottom, left, right = by.padding
    moved = np.pad(moved, ((0, 0), (top, bottom), (left, right), (0, 0)))
    num, tall, wide, depth = by.weight.shape
    parts = windows(moved, (tall, wide), by.stride, by.dilation)
    batch, rows, columns = parts.shape[:3]
    if by.groups == 1:
        flat = parts.reshape(batch * rows * columns, tall * wide * depth)
        sums = flat @ by.weight.reshape(num, -1).astype(np.float64).T
    else:
        split = parts.reshape(batch * rows * columns, tall * wide, by.groups, depth)
        kernels = by.weight.reshape(by.groups, num // by.groups, tall * wide, depth)
        sums = np.einsum("nkgd,gokd->ngo", split, kernels.astype(np.float64), optimize=True)
    return sums.reshape(batch, rows, columns, num)


def windows(
    values: Any, kernel: tuple[int, int], stride: tuple[int, int], dilation: tuple[int, int]
) -> Any:
    """Return the windows of pictures (batch, rows, columns, height, width, channels)."""
    size = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    found = np.lib.stride_tricks.sliding_window_view(values, size, axis=(1, 2))
    found = found[:, :: stride[0], :: stride[1], :, :: dilation[0], :: dilation[1]]
    return found.transpose(0, 1, 2, 4, 5, 3)
