"""Lets Pillow take decoded images out of a store, and puts them in.

This is no lever, as it has no `LEVER`.
"""

from __future__ import annotations

import os
import warnings
from contextlib import nullcontext, suppress
from time import perf_counter
from typing import Any

from ..input.datasets import EVERY, chain_of
from .jpeg import JPEG_ENDINGS, PNG_ENDINGS, finish, listed_names
from .pixel_store import PixelStore, key_of

AHEAD_S = 5.0
MODES = {"JPEG": ("L", "RGB", "CMYK"), "PNG": ("L", "LA", "RGB", "RGBA")}
"""Whose bytes are all that there is of an image."""

UNREAD = {"JPEG": 0, "PNG": 4}
"""Bytes of a file behind the place where Pillow stops: a PNG's last checksum."""


class DecodedImages:
    """Loads images for Pillow from what was kept of them."""

    depth = 1

    def __init__(self, image_module: Any, image_class: Any, store: PixelStore, load: Any) -> None:
        self.image_module, self.image_class = image_module, image_class
        self.store, self.own_load = store, load
        self.num_hits = 0
        self.is_off = False

    def load(self, image: Any) -> Any:
        """Load an image; what Pillow's own `load` returns and leaves behind."""
        is_meant = type(image) is self.image_class and image.tile and image.fp is not None
        if self.is_off or not is_meant or not can_keep(image):
            return self.own_load(image)
        key = key_of(image)
        pixels = None if key is None else self.store.get(key)
        self.num_hits += pixels is not None
        if pixels is not None and self.num_hits % EVERY:
            own = self.image_module.frombytes(image.mode, image.size, pixels)
            pass_pixels(image, own.im)
            return finish(self.image_module, image, own.im)
        file, is_shared = image.fp, not image._exclusive_fp
        result = self.own_load(image)
        if pixels is not None:
            self.is_off = image.tobytes() != bytes(pixels)
        elif key is not None and not (is_shared and has_more(file, UNREAD[image.format])):
            self.store.put(key, image.tobytes())
        return result

    def read_ahead(self, dataset: Any) -> None:
        """Decode files that a data set lists, for a few seconds at most."""
        began = perf_counter()
        outer: Any = getattr(vars(self.image_class).get("load"), "loading", None)
        with outer.ahead(dataset) if hasattr(outer, "ahead") else nullcontext():
            for one in chain_of(dataset):
                for name in listed_names(one, (*JPEG_ENDINGS, *PNG_ENDINGS)):
                    if perf_counter() - began > AHEAD_S or self.store.is_closed:
                        return
                    self.decode(name)

    def decode(self, name: Any) -> None:
        """Decode a file; if it is none, or damaged, the script may never ask for it."""
        errors = (OSError, SyntaxError, TypeError, ValueError, ArithmeticError, LookupError)
        with warnings.catch_warnings(), suppress(*errors, self.image_module.DecompressionBombError):
            warnings.simplefilter("ignore")
            if os.path.isfile(name):
                with self.image_module.open(name) as image:
                    image.load()


def can_keep(image: Any) -> bool:
    """Return whether bytes are all that there is of an image.

    A PNG file with a palette, of other than 8 bits, interlaced, or with frames is Pillow's.
    """
    if image.mode not in MODES.get(image.format, ()):
        return False
    if image.format == "JPEG":
        return True
    is_one = getattr(image.png, "im_n_frames", 1) is None and not image.info.get("interlace")
    return is_one and len(image.tile) == 1 and image.tile[0][3] == image.mode


def pass_pixels(image: Any, pixels: Any) -> None:
    """Leave the file of an image as if its pixels had been read."""
    if image.format == "JPEG":
        image.fp.seek(0, os.SEEK_END)
        return
    image.fp.seek(image.tile[0][2])
    image.im = pixels
    image.load_prepare()  # from here Pillow's own `load_end` reads the texts behind the pixels


def has_more(file: Any, num_bytes: int) -> bool:
    """Return whether Pillow left more than some bytes of a file unread."""
    place = file.tell()
    found = file.read(num_bytes + 1)
    file.seek(place)
    return len(found) > num_bytes
