"""Lets Pillow take decoded images out of a store, and puts them in.

This is no lever, as it has no `LEVER`.
"""

from __future__ import annotations

import os
import warnings
from contextlib import nullcontext, suppress
from time import perf_counter
from typing import Any

from ._datasets import EVERY, chain_of
from ._jpeg import finish, jpeg_names
from ._pixel_store import PixelStore, key_of

AHEAD_S = 5.0
MODES = ("L", "RGB", "CMYK")


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
        is_meant = type(image) is self.image_class and image.tile and image.mode in MODES
        if self.is_off or not is_meant or image.fp is None:
            return self.own_load(image)
        key = key_of(image)
        pixels = None if key is None else self.store.get(key)
        self.num_hits += pixels is not None
        if pixels is not None and self.num_hits % EVERY:
            own = self.image_module.frombytes(image.mode, image.size, pixels)
            image.fp.seek(0, os.SEEK_END)
            return finish(self.image_module, image, own.im)
        file, is_shared = image.fp, not image._exclusive_fp
        result = self.own_load(image)
        if pixels is not None:
            self.is_off = image.tobytes() != bytes(pixels)
        elif key is not None and not (is_shared and has_more(file)):
            self.store.put(key, image.tobytes())
        return result

    def read_ahead(self, dataset: Any) -> None:
        """Decode files that a data set lists, for a few seconds at most."""
        began = perf_counter()
        outer: Any = getattr(vars(self.image_class).get("load"), "loading", None)
        with outer.ahead(dataset) if hasattr(outer, "ahead") else nullcontext():
            for one in chain_of(dataset):
                for name in jpeg_names(one):
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


def has_more(file: Any) -> bool:
    """Return whether Pillow left something of a file unread."""
    place = file.tell()
    found = file.read(1)
    file.seek(place)
    return bool(found)
