"""The arithmetic of small whole numbers: steps, zeros, and products with a fraction in integers.

A real number is `scale * (q - zero)`. Weights are signed bytes with a scale for each output channel
and no zero; activations are signed bytes with one scale and one zero for each value, or 16 bits
with a scale and no zero; a value of 32 bits is a float, and stays as it is. A fraction is
`multiplier * 2 ** -shift` with a multiplier of 31 bits, and products round half away from 0.

Source: B. Jacob et al., CVPR 2018; gemmlowp's fixed point.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from steptime.quantize.observers import Range

    Bytes = NDArray[np.int8]
    Wide = NDArray[np.int64]

LOW, HIGH = -128, 127
WIDE, FLOAT = 16, 32
"""Bits of a value that is kept wider."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Affine:
    """How the numbers of a value are kept: in 8 or 16 bits, or as floats of 32 bits."""

    scale: float
    zero: int
    bits: int = 8

    def to_bytes(self, values: Any) -> Bytes:
        """Return real numbers as they are kept, in the same shape; those outside are clamped."""
        if self.bits == FLOAT:
            return np.asarray(values, dtype=np.float32)
        found = np.rint(np.asarray(values, dtype=np.float64) / self.scale) + self.zero
        return clamped(found, self.bits)

    def to_numbers(self, values: Any) -> Any:
        """Return what is kept as real numbers of the same shape."""
        return (np.asarray(values, dtype=np.float64) - self.zero) * self.scale


def ends_of(bits: int) -> tuple[int, int]:
    """Return the least and the largest number of so many bits."""
    return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1


def clamped(values: Any, bits: int, low: float = -np.inf, high: float = np.inf) -> Bytes:
    """Return whole numbers in 8 or 16 bits, clamped to these and to what is given."""
    least, most = ends_of(bits)
    kind = np.int16 if bits == WIDE else np.int8
    return np.asarray(np.clip(values, max(least, low), min(most, high)).astype(kind))


def affine_of(range_: Range, bits: int = 8) -> Affine:
    """Return the step of a range, in which 0 has a number of its own."""
    if bits == FLOAT:
        return Affine(scale=1.0, zero=0, bits=FLOAT)
    if bits == WIDE:
        reach = max(-range_.low, range_.high, range_.reach)
        return Affine(scale=reach / (2**15 - 1), zero=0, bits=WIDE)
    scale = (range_.high - range_.low) / (HIGH - LOW)
    return Affine(scale=scale, zero=LOW + round(-range_.low / scale))


def weights_of(weight: Any, *, bits: int = 8) -> tuple[Bytes, Any]:
    """Return weights (num_outputs, ...) as bytes, and the scale of each output (num_outputs,).

    Of four bits, the bytes lie between -7 and 7.
    """
    largest = 2 ** (bits - 1) - 1
    most = np.abs(weight.reshape(len(weight), -1)).max(axis=1)
    scales = np.where(most > 0, most, 1.0) / largest
    found = np.rint(weight / scales.reshape(-1, *(1,) * (weight.ndim - 1)))
    return np.clip(found, -largest, largest).astype(np.int8), scales


def fraction_of(factor: float, *, bits: int = 31) -> tuple[int, int]:
    """Return the multiplier (below 2 ** bits) and the shift of a factor above 0."""
    part, power = math.frexp(factor)  # part in [0.5, 1)
    multiplier, shift = round(part * 2**bits), bits - power
    if multiplier == 2**bits:
        multiplier, shift = multiplier >> 1, shift - 1
    while shift > 62:  # so small a factor leaves nothing of 32 bits
        multiplier, shift = multiplier >> 1, shift - 1
    return multiplier, shift


def scaled(values: Wide, multipliers: Any, shifts: Any) -> Wide:
    """Return values times fractions, rounded half away from 0; the last axis has the fractions."""
    whole = values * np.asarray(multipliers, dtype=np.int64)
    return shifted(whole, np.asarray(shifts, dtype=np.int64))


def shifted(whole: Wide, shifts: Any) -> Wide:
    """Return numbers without their lowest bits, rounded half away from 0."""
    half = np.left_shift(np.int64(1), shifts - 1)
    return np.asarray(np.right_shift(whole + half - (whole < 0), shifts))
