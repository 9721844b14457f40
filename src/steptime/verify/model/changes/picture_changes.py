"""Changes pictures as a camera or a file might: what they show stays the same.

In: pixels (num_rows, height, width), with channels (1, 3 or 4) last or before height. Out: the
changed pixels, and the rows that the change claims to have changed.

Source of re-encoding: ITU-T T.81 (JPEG), annex K: the lossy step alone, each block of 8 x 8 pixels
as rounded cosine terms; color stays in its channels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from steptime.verify.model.changes.column_changes import Changer, Dosed, corrupt, like, noise

if TYPE_CHECKING:
    from steptime.verify.model.changes.column_changes import Mask, Values

_DEGREES = 5.0
_BRIGHTER = 0.1
"""Of the range of the pixels."""

_CHANNELS = (1, 3, 4)
_BLOCK = 8
_LUMINANCE = """
16 11 10 16 24 40 51 61  12 12 14 19 26 58 60 55  14 13 16 24 40 57 69 56  14 17 22 29 51 87 80 62
18 22 37 56 68 109 103 77  24 35 55 64 81 104 113 92  49 64 78 87 103 121 120 101
72 92 95 98 112 100 103 99
"""
"""Quantization at quality 50 of pixels from 0 to 255 (T.81, table K.1)."""


def flip(values: Values, how: Dosed) -> tuple[Values, Mask]:
    """Mirror left and right."""
    return np.flip(values, axis=_axes(values)[1]), _all(values)


def shift(values: Values, how: Dosed) -> tuple[Values, Mask]:
    """Move by one pixel to the right; the first column stands twice."""
    axis = _axes(values)[1]
    moved = np.roll(values, 1, axis=axis)
    first = [slice(None)] * values.ndim
    first[axis] = slice(0, 1)
    moved[tuple(first)] = values[tuple(first)]
    return moved, _all(values)


def turn(values: Values, how: Dosed) -> tuple[Values, Mask]:
    """Turn by five degrees about the middle."""
    from scipy.ndimage import rotate

    axes = _axes(values)
    turned = rotate(
        values.astype(float), _DEGREES, axes=axes, reshape=False, order=1, mode="nearest"
    )
    return like(turned, values), _all(values)


def brighten(values: Values, how: Dosed) -> tuple[Values, Mask]:
    """Make brighter by a tenth of the range, which is kept."""
    low, high = float(values.min()), float(values.max())
    changed = np.clip(values.astype(float) + _BRIGHTER * (high - low), low, high)
    return like(changed, values), _all(values)


def encode_again(values: Values, how: Dosed) -> tuple[Values, Mask]:
    """Round the cosine terms of each block, as a JPEG file of quality 50 does."""
    from scipy.fft import dctn, idctn

    moved = np.moveaxis(values.astype(float), _axes(values), (-2, -1))
    height, width = moved.shape[-2:]
    rest = [(0, 0)] * (moved.ndim - 2)
    padded = np.pad(moved, [*rest, (0, -height % _BLOCK), (0, -width % _BLOCK)], mode="edge")
    low, high = float(values.min()), float(values.max())
    table = np.array(_LUMINANCE.split(), dtype=float).reshape(_BLOCK, _BLOCK)
    table *= (high - low or 1.0) / 255
    *lead, tall, wide = padded.shape
    blocks = padded.reshape(*lead, tall // _BLOCK, _BLOCK, wide // _BLOCK, _BLOCK)
    blocks = np.moveaxis(blocks, -3, -2)
    terms = dctn(blocks, axes=(-2, -1), norm="ortho")
    back = idctn(np.rint(terms / table) * table, axes=(-2, -1), norm="ortho")
    whole = np.moveaxis(back, -2, -3).reshape(*lead, tall, wide)[..., :height, :width]
    changed = np.moveaxis(np.clip(whole, low, high), (-2, -1), _axes(values))
    return like(changed, values), _all(values)


def _axes(values: Values) -> tuple[int, int]:
    """Return the axes of height and width."""
    if values.ndim == 3 or values.shape[-1] in _CHANNELS:
        return 1, 2
    return values.ndim - 2, values.ndim - 1


def _all(values: Values) -> Mask:
    return np.ones(len(values), dtype=bool)


OF_PICTURES: Mapping[str, Changer] = {
    "noise": noise,
    "corrupt": corrupt,
    "flip": flip,
    "shift": shift,
    "rotate": turn,
    "brightness": brighten,
    "reencode": encode_again,
}
