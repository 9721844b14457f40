"""Gives an image's pixels to the copy that a script makes of it, in place of a second memory.

This is no lever, as it has no `LEVER`. `Image.open(file).convert("RGB")` decodes, copies all pixels
and throws the first ones away. Here the copy gets them. The opened image sees them as well, until
somebody asks it for anything: then it gets pixels of its own, made again, so that what was done to
the copy never shows in it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any


class LentPixels:
    """The opened images of this process whose pixels belong to their copies."""

    def __init__(self) -> None:
        self.lent: dict[int, tuple[weakref.ref[Any], Any, Callable[[], Any]]] = {}

    def lend(self, image: Any, pixels: Any, make: Callable[[], Any]) -> None:
        """Note that an image has pixels that belong to its copy.

        Args:
            image: the opened image; it is loaded.
            pixels: what it has, as Pillow keeps them.
            make: makes the same pixels again.
        """
        key = id(image)
        gone = weakref.ref(image, lambda _: self.lent.pop(key, None) and None)
        self.lent[key] = gone, pixels, make

    def settle(self, image: Any) -> None:
        """Give an image pixels of its own, if its copy has them."""
        found = self.lent.pop(id(image), None)
        if found is None:
            return
        gone, pixels, make = found
        is_it: bool = gone() is image  # and not a later one at the same address
        values = vars(image)
        if is_it and values.get("_im", values.get("im")) is pixels:  # else it was closed
            image.im = make()

    def settle_all(self) -> None:
        """Give all images pixels of their own."""
        for gone, _, _ in list(self.lent.values()):
            image = gone()
            if image is not None:
                self.settle(image)
