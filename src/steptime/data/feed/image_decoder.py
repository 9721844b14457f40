"""Decodes the pictures of a batch, in threads that do not wait for each other.

JPEG goes to simplejpeg (libjpeg-turbo without the interpreter lock, the bits of Pillow); what it
does not read goes to Pillow, where that is installed. docs/explanation/dependencies.md has the
figures of this choice.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import numpy as np
import simplejpeg
from numpy.typing import NDArray

from steptime.data.feed.columns import Columns
from steptime.errors import MissingExtraError

JPEG_START = b"\xff\xd8\xff"
MODES = {"RGB": "RGB", "L": "GRAY"}


class ImageDecoder:
    """A `decode` for `Loader` and `MapDataset`: bytes of pictures become arrays.

    A picture becomes `(height, width, 3)` of uint8, or `(height, width, 1)` in mode `L`, with
    the bits that Pillow's `convert(mode)` gives.
    """

    def __init__(self, column: str = "data", *, mode: str = "RGB") -> None:
        """Decode a column.

        Raises:
            ValueError: the mode is neither RGB nor L.
        """
        if mode not in MODES:
            raise ValueError(f"`mode` is RGB or L, got {mode!r}")
        self.column = column
        self.mode = mode

    def __call__(self, columns: Columns) -> Columns:
        """Return the columns with the pictures decoded.

        Raises:
            ValueError: bytes are no picture; whoever reads them says which sample it is.
        """
        pictures: Any = [self.decode(bytes(data)) for data in columns[self.column]]
        decoded: Mapping[str, Any] = {**columns, self.column: pictures}
        return decoded

    def decode(self, data: bytes) -> NDArray[np.uint8]:
        """Return one picture."""
        if data.startswith(JPEG_START):
            *_, colorspace, _ = simplejpeg.decode_jpeg_header(data)
            if colorspace in ("YCbCr", "Gray") and (self.mode, colorspace) != ("L", "YCbCr"):
                picture: NDArray[np.uint8] = simplejpeg.decode_jpeg(data, MODES[self.mode])
                return picture
        return _with_pillow(data, self.mode)


def _with_pillow(data: bytes, mode: str) -> NDArray[np.uint8]:
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingExtraError(
            f"a picture that is no plain JPEG is decoded by Pillow, which is not there: {error}",
            hint="pip install pillow",
        ) from error
    picture = np.array(Image.open(io.BytesIO(data)).convert(mode))
    return picture if picture.ndim == 3 else picture[:, :, None]
