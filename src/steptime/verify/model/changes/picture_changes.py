"""Changes pictures as a camera or a file might: what they show stays the same.

In: pixels (num_rows, height, width), with channels (1, 3 or 4) last or before height. Out: the
changed pixels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from steptime.verify.model.changes.column_changes import Changer, Dosed, corrupt, like, noise

if TYPE_CHECKING:
    from steptime.verify.model.changes.column_changes import Values

_DEGREES, _BRIGHTER = 5.0, 0.1
"""Of a rotation; of the range of the pixels."""

_BLOCK = 8
_LUMINANCE = """
16 11 10 16 24 40 51 61  12 12 14 19 26 58 60 55  14 13 16 24 40 57 69 56  14 17 22 29 51 87 80 62
18 22 37 56 68 109 103 77  24 35 55 64 81 104 113 92  49 64 78 87 103 121 120 101
72 92 95 98 112 100 103 99
"""
"""Steps of the cosine terms at quality 50, of pixels from 0 to 255 (ITU-T T.81, table K.1)."""


def flip(values: Values, how: Dosed) -> Values:
    """Mirror left and right."""
    return np.flip(values, axis=_axes(values)[1])


def shift(values: Values, how: Dosed) -> Values:
    """Move by one pixel to the right; the first column stands twice."""
    axis = _axes(values)[1]
    first, rest = np.split(values, [1], axis=axis)
    return np.concatenate([first, first, np.delete(rest, -1, axis=axis)], axis=axis)


def turn(values: Values, how: Dosed) -> Values:
    """Turn by five degrees about the middle."""
    from scipy.ndimage import rotate

    way = {"axes": _axes(values), "reshape": False, "order": 1, "mode": "nearest"}
    return like(rotate(values.astype(float), _DEGREES, **way), values)


def brighten(values: Values, how: Dosed) -> Values:
    """Make brighter by a tenth of the range, which is kept."""
    low, high = float(values.min()), float(values.max())
    return like(np.clip(values + _BRIGHTER * (high - low), low, high), values)


def encode_again(values: Values, how: Dosed) -> Values:
    """Round the cosine terms of each block of 8 x 8, channel by channel, as a JPEG file does."""
    from scipy.fft import dctn, idctn

    moved = np.moveaxis(values.astype(float), _axes(values), (-2, -1))
    height, width = moved.shape[-2:]
    edges = [(0, 0)] * (moved.ndim - 2) + [(0, -height % _BLOCK), (0, -width % _BLOCK)]
    padded = np.pad(moved, edges, mode="edge")
    *lead, tall, wide = padded.shape
    blocks = padded.reshape(*lead, tall // _BLOCK, _BLOCK, wide // _BLOCK, _BLOCK)
    low, high = float(values.min()), float(values.max())
    table = np.array(_LUMINANCE.split(), dtype=float).reshape(_BLOCK, 1, _BLOCK)
    table *= (high - low or 1.0) / 255
    terms = np.rint(dctn(blocks, axes=(-3, -1), norm="ortho") / table) * table
    whole = idctn(terms, axes=(-3, -1), norm="ortho").reshape(padded.shape)[..., :height, :width]
    return like(np.moveaxis(np.clip(whole, low, high), (-2, -1), _axes(values)), values)


def _axes(values: Values) -> tuple[int, int]:
    """Return the axes of height and width."""
    is_last = values.ndim == 3 or values.shape[-1] in (1, 3, 4)
    return (1, 2) if is_last else (values.ndim - 2, values.ndim - 1)


OF_PICTURES: Mapping[str, Changer] = {
    "noise": noise,
    "corrupt": corrupt,
    "flip": flip,
    "shift": shift,
    "rotate": turn,
    "brightness": brighten,
    "reencode": encode_again,
}
