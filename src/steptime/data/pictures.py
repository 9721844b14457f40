"""Decodes one picture from its bytes, as Pillow's `convert(mode)` does.

JPEG goes to simplejpeg (libjpeg-turbo without the interpreter lock, the bits of Pillow); what it
does not read goes to Pillow, where that is installed. docs/internals/dependencies.md has the
figures of this choice.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import simplejpeg
from numpy.typing import NDArray

from steptime.errors import MissingExtraError

JPEG_START = b"\xff\xd8\xff"
MODES = {"RGB": "RGB", "L": "GRAY"}
"""Pillow's modes that a picture can be decoded to, as simplejpeg names them."""

_COLORS = ("RGB", "YCbCr", "Gray")
"""Of a JPEG file that simplejpeg decodes as Pillow does: that has its own way with four colors."""


class NoPictureError(ValueError):
    """Bytes are no picture at all."""


def decode_picture(data: bytes, mode: str = "RGB", *, is_fast: bool = True) -> NDArray[np.uint8]:
    """Return the pixels of a picture, shape (height, width, bands).

    Args:
        data: an encoded picture.
        mode: `RGB` or `L`.
        is_fast: JPEG may be decoded by simplejpeg.

    Raises:
        ValueError: it cannot be decoded.
        MissingExtraError: it needs Pillow, which is not there.
    """
    if is_fast and data[:3] == JPEG_START:
        colors = simplejpeg.decode_jpeg_header(data)[2]
        # Pillow makes gray of colors by weights of its own.
        if colors in _COLORS and (mode == "RGB" or colors == "Gray"):
            pixels: NDArray[np.uint8] = simplejpeg.decode_jpeg(data, MODES[mode])
            return pixels
    return decode_by_pillow(data, mode)


def decode_by_pillow(data: bytes, mode: str = "RGB") -> NDArray[np.uint8]:
    """Return the pixels of a picture as Pillow decodes it, shape (height, width, bands).

    Raises:
        ValueError: it cannot be decoded.
        MissingExtraError: there is no Pillow.
    """
    image = pillow()
    try:
        with image.open(io.BytesIO(data)) as picture:
            pixels: NDArray[np.uint8] = np.array(picture.convert(mode))
    except image.UnidentifiedImageError as error:
        raise NoPictureError("it is no picture" if data else "it is empty: 0 bytes") from error
    except (OSError, SyntaxError, image.DecompressionBombError) as error:
        raise ValueError(f"the picture cannot be decoded: {error}") from error
    return pixels if pixels.ndim == 3 else pixels[:, :, None]


def pillow() -> Any:
    """Return Pillow's module `Image`.

    Raises:
        MissingExtraError: it is not there.
    """
    try:
        from PIL import Image
    except (ImportError, RuntimeError) as error:
        raise MissingExtraError(
            f"pictures other than plain JPEG, and other sizes, need Pillow: {error}",
            needs="pillow",
        ) from error
    return Image


def has_pillow() -> bool:
    """Return whether Pillow can be imported."""
    try:
        pillow()
    except MissingExtraError:
        return False
    return True
