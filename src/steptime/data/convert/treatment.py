"""What a conversion does to pictures: keeps their bytes, decodes, resizes or encodes them again.

In: the bytes of an encoded picture. Out: bytes, or pixels as RGB. A picture that is decoded has
the pixels that Pillow's `Image.open(...).convert("RGB")` gives, whichever decoder is used: the
faster one is compared with Pillow before it is trusted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import simplejpeg

from steptime.data.pictures import JPEG_START, decode_by_pillow, decode_picture, has_pillow, pillow
from steptime.errors import UsageError

DEFAULT_QUALITY = 90
"""Of pictures that are resized and stay JPEG; FFCV's tables use the same."""
_NUM_COMPARED = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Treatment:
    """What is done to each picture.

    Attributes:
        decode: pixels are stored.
        size: width and height after resizing.
        shorter_side: after resizing; the other side follows.
        quality: of the JPEG that is stored.
    """

    decode: bool = False
    size: tuple[int, int] | None = None
    shorter_side: int | None = None
    quality: int | None = None

    @property
    def is_resizing(self) -> bool:
        """Whether pictures get another size."""
        return self.size is not None or self.shorter_side is not None

    @property
    def keeps_bytes(self) -> bool:
        """Whether pictures stay as they are."""
        return not (self.decode or self.is_resizing or self.quality is not None)

    @property
    def words(self) -> str:
        """What it does, for a person; empty where it does nothing."""
        told = []
        if self.size is not None:
            told.append(f"resized to {self.size[0]} x {self.size[1]}")
        elif self.shorter_side is not None:
            told.append(f"resized to {self.shorter_side} at the shorter side")
        if self.decode:
            told.append("decoded to RGB")
        elif not self.keeps_bytes:
            told.append(f"encoded as JPEG of quality {self.quality or DEFAULT_QUALITY}")
        return ", ".join(told)


def treat(data: bytes, treatment: Treatment, *, is_fast: bool = True) -> Any:
    """Return a picture as it is stored: bytes, or pixels of shape (height, width, 3).

    Raises:
        ValueError: it cannot be decoded.
    """
    if treatment.keeps_bytes:
        return data
    pixels: Any = decode_picture(data, is_fast=is_fast)
    if treatment.is_resizing:
        pixels = _resized(pixels, treatment)
    if treatment.decode:
        return pixels
    quality = treatment.quality or DEFAULT_QUALITY
    return simplejpeg.encode_jpeg(pixels, quality=quality, colorspace="RGB", colorsubsampling="420")


def can_be_fast(pictures: Sequence[bytes]) -> bool:
    """Return whether the faster decoder gives the first pictures as Pillow does, bit for bit.

    Without Pillow there is nothing to compare with, and no training that decodes with it.
    """
    if not has_pillow():
        return True
    jpegs = [data for data in pictures if data[:3] == JPEG_START][:_NUM_COMPARED]
    try:
        return all(np.array_equal(decode_picture(data), decode_by_pillow(data)) for data in jpegs)
    except ValueError:
        return False


def _resized(pixels: Any, treatment: Treatment) -> Any:
    """Return pixels of another size, as torchvision's `Resize` makes them of a picture.

    Source: https://docs.pytorch.org/vision/stable/generated/torchvision.transforms.Resize.html
    """
    image = pillow()
    height, width = pixels.shape[:2]
    size = treatment.size
    if size is None:
        side = int(treatment.shorter_side or 0)
        longer = int(side * max(width, height) / min(width, height))
        size = (side, longer) if width <= height else (longer, side)
    if size == (width, height):
        return pixels
    return np.asarray(image.fromarray(pixels).resize(size, image.Resampling.BILINEAR))


def parse_resize(text: str) -> Treatment:
    """Return the treatment that `256` (the shorter side) or `256x192` (width, height) names.

    Raises:
        UsageError: it is neither.
    """
    numbers = text.lower().split("x")
    if len(numbers) <= 2 and all(
        n.isascii() and n.isdigit() and len(n) < 6 and 0 < int(n) < 65536 for n in numbers
    ):
        sides = [int(number) for number in numbers]
        if len(sides) == 1:
            return Treatment(shorter_side=sides[0])
        return Treatment(size=(sides[0], sides[1]))
    raise UsageError(f"a size must be like 256 or 256x192, got `{text}`")
