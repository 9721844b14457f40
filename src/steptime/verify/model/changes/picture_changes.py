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

_BLOCK, _FIRST_STEP, _MORE = 8, 10.0, 6.0
"""Of cosine terms, of pixels from 0 to 255: larger steps for finer terms, about as in table K.1 of
ITU-T T.81 (quality 50)."""


def shift(values: Values, how: Dosed) -> Values:
    """Move by one pixel to the right; the first column stands twice."""
    axis = _axes(values)[1]
    return np.take(values, np.maximum(np.arange(values.shape[axis]) - 1, 0), axis=axis)


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
    place = np.arange(_BLOCK)
    steps = _FIRST_STEP + _MORE * (place[:, None, None] + place)
    steps *= (high - low or 1.0) / 255
    terms = np.rint(dctn(blocks, axes=(-3, -1), norm="ortho") / steps) * steps
    whole = idctn(terms, axes=(-3, -1), norm="ortho").reshape(padded.shape)[..., :height, :width]
    return like(np.moveaxis(np.clip(whole, low, high), (-2, -1), _axes(values)), values)


def _axes(values: Values) -> tuple[int, int]:
    """Return the axes of height and width."""
    is_last = values.ndim == 3 or values.shape[-1] in (1, 3, 4)
    return (1, 2) if is_last else (values.ndim - 2, values.ndim - 1)


OF_PICTURES: Mapping[str, Changer] = {
    "noise": noise,
    "corrupt": corrupt,
    "flip": lambda values, how: np.flip(values, axis=_axes(values)[1]),
    "shift": shift,
    "rotate": turn,
    "brightness": brighten,
    "reencode": encode_again,
}
