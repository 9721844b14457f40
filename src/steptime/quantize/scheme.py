"""The arithmetic of small whole numbers: steps, zeros, and products with a fraction in integers.

A real number is `scale * (q - zero)`. Weights are signed bytes with a scale for each output channel
and no zero; activations are signed bytes with one scale and one zero for each value. A fraction is
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Affine:
    """How the numbers of a value are kept in bytes."""

    scale: float
    zero: int

    def to_bytes(self, values: Any) -> Bytes:
        """Return real numbers as bytes of the same shape; those outside are clamped."""
        found = np.rint(np.asarray(values, dtype=np.float64) / self.scale) + self.zero
        return np.asarray(np.clip(found, LOW, HIGH).astype(np.int8))

    def to_numbers(self, values: Any) -> Any:
        """Return bytes as real numbers of the same shape."""
        return (np.asarray(values, dtype=np.float64) - self.zero) * self.scale


def affine_of(range_: Range) -> Affine:
    """Return the step of a range, in which 0 has a byte of its own."""
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


def fraction_of(factor: float) -> tuple[int, int]:
    """Return the multiplier (below 2 ** 31) and the shift of a factor above 0."""
    part, power = math.frexp(factor)  # part in [0.5, 1)
    multiplier, shift = round(part * 2**31), 31 - power
    if multiplier == 2**31:
        multiplier, shift = 2**30, shift - 1
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
