"""Decodes a JPEG file that Pillow has opened by simplejpeg, to the same image.

This is no lever, as it has no `LEVER`. Both decode with libjpeg-turbo, and simplejpeg's newer or
better built copy of it needs less time; the pixels are compared while the training runs, because
nothing promises that two builds agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from ._datasets import EVERY, NUM_FIRST
from .base import Facts

START_OF_IMAGE = b"\xff\xd8"
END_OF_IMAGE = b"\xff\xd9"
BASELINE = (0xC0, 0xC1)
"""Frames that are coded in one pass with Huffman's code; 0xC2 is progressive."""

OTHER_FRAMES = frozenset(range(0xC2, 0xD0)) - {0xC4, 0xC8, 0xCC}
START_OF_SCAN = 0xDA
LAYOUTS = {"RGB": ("RGBX", 4), "L": ("GRAY", 1)}
"""Pillow's modes as simplejpeg names them, and the bytes of a pixel in Pillow's memory."""


def why_no_jpeg(facts: Facts) -> str | None:
    """Return why no sample was made from a JPEG file by Pillow; None where one may have been."""
    loaders = facts.loaders
    if loaders is not None and not loaders:
        return "No DataLoader fed the training."
    if loaders and all(loader.decodes_jpeg is False for loader in loaders):
        return "No sample was made from a JPEG file by Pillow."
    return None


def pillow() -> tuple[Any, Any] | None:
    """Return Pillow's modules `Image` and `JpegImagePlugin`; None where there is no Pillow."""
    if find_spec("PIL") is None:
        return None
    image_module: Any = import_module("PIL.Image")
    image_module.preinit()  # the order in which Pillow itself registers its readers
    return image_module, import_module("PIL.JpegImagePlugin")


def is_plain(data: bytes) -> bool:
    """Return whether it is a baseline JPEG that ends where its file does."""
    if data[:2] != START_OF_IMAGE or data[-2:] != END_OF_IMAGE:
        return False
    place, is_baseline = 2, False
    while place + 4 <= len(data) and data[place] == 0xFF:
        marker = data[place + 1]
        if marker in OTHER_FRAMES:
            return False
        is_baseline = is_baseline or marker in BASELINE
        if marker == START_OF_SCAN:
            return is_baseline
        place += 2 + int.from_bytes(data[place + 2 : place + 4], "big")
    return False


def can_decode(image: Any) -> bool:
    """Return whether an opened image waits to be decoded whole, as it is in its file."""
    if len(image.tile) != 1 or image.mode not in LAYOUTS or image.decoderconfig != ():
        return False  # `draft` asked for a smaller one
    (kind, extents, offset, arguments), whole = image.tile[0], (0, 0, *image.size)
    return kind == "jpeg" and (extents, offset, arguments) == (whole, 0, (image.mode, ""))


def decode(simplejpeg: Any, core: Any, image: Any) -> Any:
    """Return the pixels of an opened image as Pillow keeps them; None where Pillow must decode.

    The file is at its end afterwards, where Pillow leaves it, or else where it was.
    """
    if not can_decode(image) or image.fp is None:
        return None
    place = image.fp.tell()
    image.fp.seek(0)
    data = image.fp.read()
    pixels = None
    if is_plain(data):
        layout, num_bytes = LAYOUTS[image.mode]
        try:
            pixels = simplejpeg.decode_jpeg(data, layout)
        except ValueError:
            pixels = None  # damaged: Pillow raises, or makes of it what it can
        if pixels is not None and pixels.nbytes == num_bytes * image.width * image.height:
            return core.map_buffer(pixels, image.size, "raw", 0, (image.mode, 0, 1))
    image.fp.seek(place)
    return None


class Decoder:
    """Loads JPEG images for Pillow; gives up in this process as soon as two pixels differ.

    Args:
        pil: the modules `Image` and `JpegImagePlugin` of Pillow.
        simplejpeg: the module.
        load: Pillow's own `load`.
        decoding: returns the pixels of an opened image, given `simplejpeg` and Pillow's core.
    """

    def __init__(
        self, pil: tuple[Any, Any], simplejpeg: Any, load: Any, decoding: Any = decode
    ) -> None:
        self.decoding = decoding
        (self.image_module, plugin), self.simplejpeg, self.own_load = pil, simplejpeg, load
        self.image_class = plugin.JpegImageFile
        self.num_decoded = 0
        self.is_off = False

    def load(self, image: Any) -> Any:
        """Load an image; what Pillow's own `load` returns and leaves behind."""
        if self.is_off or not image.tile or type(image) is not self.image_class:
            return self.own_load(image)  # it is loaded, or a file of several images
        pixels = self.decoding(self.simplejpeg, self.image_module.core, image)
        if pixels is None:
            return self.own_load(image)
        self.num_decoded += 1
        if self.num_decoded <= NUM_FIRST or self.num_decoded % EVERY == 0:
            result = self.own_load(image)
            self.is_off = image.tobytes() != image._new(pixels).tobytes()
            return result
        return finish(self.image_module, image, pixels)


def finish(image_module: Any, image: Any, pixels: Any) -> Any:
    """Give an opened image its pixels, and leave it as Pillow's own `load` does."""
    image.map, image.im, image.tile, image.readonly = None, pixels, [], 0
    image.load_end()
    if image._exclusive_fp and image._close_exclusive_fp_after_loading:
        image.fp.close()
    image.fp = None
    return image_module.Image.load(image)


def put_around(image_class: Any, loading: Any) -> Callable[[], None]:
    """Let a class of images load by `loading.load`, which has what was there as its `own_load`.

    A decoder goes inside a store of decoded images, whichever comes first. Return the way back.
    """
    before = vars(image_class).get("load")
    outer = getattr(before, "loading", None)
    if outer is not None and hasattr(outer, "store"):
        inner = outer.own_load
        loading.own_load, outer.own_load = inner, loading.load
        return lambda: setattr(outer, "own_load", inner)

    def load(image: Any) -> Any:
        return loading.load(image)

    def undo() -> None:
        if before is None:
            del image_class.load
        else:
            image_class.load = before

    load.loading = loading  # type: ignore[attr-defined]
    image_class.load = load
    return undo


def jpeg_names(dataset: Any) -> Iterator[Any]:
    """Give the JPEG files that a data set lists, alone or first in tuples; there may be none."""
    for value in vars(dataset).values() if hasattr(dataset, "__dict__") else ():
        if isinstance(value, list) and value:
            names = (one[0] if isinstance(one, tuple) and one else one for one in value)
            if str(next(names)).lower().endswith((".jpg", ".jpeg")):
                yield from (one[0] if isinstance(one, tuple) and one else one for one in value)
                return
