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

from ..base import Facts
from ..input.datasets import EVERY, NUM_FIRST
from .lent_pixels import LentPixels

JPEG_ENDINGS, PNG_ENDINGS = (".jpg", ".jpeg"), (".png",)
START_OF_IMAGE = b"\xff\xd8"
END_OF_IMAGE = b"\xff\xd9"
BASELINE = (0xC0, 0xC1)
"""Frames that are coded in one pass with Huffman's code; 0xC2 is progressive."""

OTHER_FRAMES = frozenset(range(0xC2, 0xD0)) - {0xC4, 0xC8, 0xCC}
START_OF_SCAN = 0xDA
LAYOUTS = {"RGB": ("RGBX", 4), "L": ("GRAY", 1)}
"""Pillow's modes as simplejpeg names them, and the bytes of a pixel in Pillow's memory."""


def why_no_jpeg(facts: Facts, *, is_png_meant: bool = False) -> str | None:
    """Return why no sample was made from a JPEG file by Pillow; None where one may have been.

    With `is_png_meant`, a PNG file will do.
    """
    loaders = facts.loaders
    if loaders is not None and not loaders:
        return "No DataLoader fed the training."
    if loaders and all(
        (loader.decodes_jpeg is False and not (is_png_meant and loader.decodes_png is not False))
        or loader.is_in_memory
        or loader.is_tensor_dataset
        for loader in loaders
    ):
        return f"No sample was made from a JPEG {'or PNG ' * is_png_meant}file by Pillow."
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


def find_pixels(simplejpeg: Any, core: Any, image: Any) -> Callable[[], Any] | None:
    """Return what makes the pixels of an opened image; None where Pillow must decode.

    It returns None itself for a damaged file: Pillow raises, or makes of it what it can.
    """
    if not can_decode(image):
        return None
    image.fp.seek(0)
    data = image.fp.read()
    if not is_plain(data):
        return None
    mode, size = image.mode, image.size
    layout, num_bytes = LAYOUTS[mode]

    def make() -> Any:
        try:
            pixels = simplejpeg.decode_jpeg(data, layout)
        except ValueError:
            return None
        if pixels.nbytes != num_bytes * size[0] * size[1]:
            return None
        return core.map_buffer(pixels, size, "raw", 0, (mode, 0, 1))

    return make


class Decoder:
    """Loads JPEG images for Pillow; gives up in this process as soon as two pixels differ.

    Args:
        pil: the modules `Image` and `JpegImagePlugin` of Pillow.
        source: where the pixels come from: the module `simplejpeg`, or a prepared copy.
        load: Pillow's own `load`.
        find: returns what makes the pixels of an opened image, given `source` and Pillow's core,
            and leaves the file where Pillow would.
    """

    depth = 2

    def __init__(
        self, pil: tuple[Any, Any], source: Any, load: Any, find: Any = find_pixels
    ) -> None:
        self.find = find
        (self.image_module, plugin), self.source, self.own_load = pil, source, load
        self.image_class = plugin.JpegImageFile
        self.num_decoded = 0
        self.is_off = False
        self.lent = LentPixels()

    def load(self, image: Any) -> Any:
        """Load an image; what Pillow's own `load` returns and leaves behind."""
        self.lent.settle(image)
        pixels, _ = self.decode(image)
        if pixels is None:
            return self.own_load(image)
        self.num_decoded += 1
        if self.is_to_be_compared():
            result = self.own_load(image)
            self.is_off = image.tobytes() != image._new(pixels).tobytes()
            return result
        return finish(self.image_module, image, pixels)

    def copy(self, image: Any) -> Any:
        """Return the copy that Pillow makes of an image that waits to be decoded, or None."""
        if self.is_to_be_compared(1):
            return None
        pixels, make = self.decode(image)
        if pixels is None:
            return None
        self.num_decoded += 1
        leave_as_loaded(image, pixels)
        self.lent.lend(image, pixels, make)
        return image._new(pixels)

    def is_to_be_compared(self, ahead: int = 0) -> bool:
        """Return whether the image that was decoded, or one after it, is decoded by both."""
        number = self.num_decoded + ahead
        return number <= NUM_FIRST or number % EVERY == 0

    def decode(self, image: Any) -> tuple[Any, Any]:
        """Return the pixels of an opened image, and what makes them; None where Pillow must."""
        is_meant = image.tile and type(image) is self.image_class and image.fp is not None
        if self.is_off or not is_meant:
            return None, None  # it is loaded, or a file of several images
        place = image.fp.tell()
        make = self.find(self.source, self.image_module.core, image)
        pixels = None if make is None else make()
        if pixels is None:
            image.fp.seek(place)
        return pixels, make


def finish(image_module: Any, image: Any, pixels: Any) -> Any:
    """Give an opened image its pixels; what Pillow's own `load` returns and leaves behind."""
    leave_as_loaded(image, pixels)
    return image_module.Image.load(image)


def leave_as_loaded(image: Any, pixels: Any) -> None:
    """Give an opened image its pixels, and leave it as Pillow's own `load` does."""
    image.map, image.im, image.tile, image.readonly = None, pixels, [], 0
    image.load_end()
    if image._exclusive_fp and image._close_exclusive_fp_after_loading:
        image.fp.close()
    image.fp = None


def put_around(image_class: Any, loading: Any) -> Callable[[], None]:
    """Let a class of images load by `loading.load`, which has what was there as its `own_load`.

    What says at which size an image is decoded goes around a store of decoded images, and that
    around a decoder (`depth`), whichever comes first. Return the way back.
    """
    before = vars(image_class).get("load")
    outer = getattr(before, "loading", None)
    if outer is not None and outer.depth < loading.depth:
        return put_behind(outer, loading)

    def load(image: Any) -> Any:
        return loading.load(image)

    def undo() -> None:
        take_back()
        if before is None:
            del image_class.load
        else:
            image_class.load = before

    load.loading = loading  # type: ignore[attr-defined]
    image_class.load = load
    take_back = put_convert(image_class, loading) if isinstance(loading, Decoder) else _nothing
    return undo


def put_behind(outer: Any, loading: Any) -> Callable[[], None]:
    """Let what loads images call `loading` in place of what it calls now; return the way back."""
    load = outer.own_load
    inner = getattr(load, "loading", getattr(load, "__self__", None))
    if inner is not None and inner.depth < loading.depth:
        return put_behind(inner, loading)
    loading.own_load, outer.own_load = load, loading.load
    return lambda: setattr(outer, "own_load", load)


def _nothing() -> None:
    """Take nothing back."""


def put_convert(image_class: Any, decoder: Decoder) -> Callable[[], None]:
    """Let `convert` to the mode that an image has give the decoded pixels; return the way back.

    It acts only while the class loads by this decoder, with nothing around it.
    """
    before, convert_copy = vars(image_class).get("convert"), image_class.convert

    def convert(image: Any, mode: Any = None, *args: Any, **kwargs: Any) -> Any:
        is_copy = mode == image.mode and not args and not kwargs and image.tile
        if is_copy and getattr(vars(image_class).get("load"), "loading", None) is decoder:
            copy = decoder.copy(image)
            if copy is not None:
                return copy
        return convert_copy(image, mode, *args, **kwargs)

    def undo() -> None:
        decoder.lent.settle_all()
        if before is None:
            del image_class.convert
        else:
            image_class.convert = before

    image_class.convert = convert
    return undo


def listed_names(dataset: Any, endings: tuple[str, ...] = JPEG_ENDINGS) -> Iterator[Any]:
    """Give the files that a data set lists, alone or first in tuples; there may be none.

    Of a list, the first name says of which kind all are.
    """
    for value in vars(dataset).values() if hasattr(dataset, "__dict__") else ():
        if isinstance(value, list) and value:
            names = (one[0] if isinstance(one, tuple) and one else one for one in value)
            if str(next(names)).lower().endswith(endings):
                yield from (one[0] if isinstance(one, tuple) and one else one for one in value)
                return
