"""Decodes the pictures of a batch, in threads that do not wait for each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steptime.data.feed.columns import Columns
from steptime.data.pictures import MODES, decode_picture


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
        return decode_picture(data, self.mode)
