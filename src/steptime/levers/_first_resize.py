"""Finds what the first transform of a data set asks of an image, and how small it may be decoded.

This is no lever, as it has no `LEVER`. It reads attributes alone: of the data set, and of the
transforms of torchvision and timm.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from contextlib import suppress
from importlib import import_module
from itertools import islice
from typing import Any, NamedTuple

from ._datasets import chain_of
from ._jpeg import listed_names
from ._transforms import CHAINS, CONVERTERS, SCALING, V1, V2, name_of
from .base import LoaderFacts

GAP = 2.0
"""Pillow's own for `Image.thumbnail`, "very close to fair resampling"; see its `reducing_gap`."""

FACTORS = (8, 4, 2)
"""By which libjpeg can leave out frequencies while it decodes."""

RESIZES = frozenset((f"{V1}Resize", f"{V2}_geometry.Resize"))
CROPS = frozenset(
    (
        *(f"{V1}RandomResizedCrop", f"{V2}_geometry.RandomResizedCrop"),
        "timm.data.transforms.RandomResizedCropAndInterpolation",
    )
)
KEEP_PLACES = CONVERTERS - SCALING
"""They make a tensor of the same pixels."""

MAX_STEPS = 8
"""Chains in chains; the search must end for one that contains itself."""

USABLE, NO_RESIZE, SMALL, POSITIONS = "usable", "no_resize", "small", "positions"
"""What is found of a loader: the words of `LoaderFacts.scaled_decoding`."""

MAX_NAMES = 1 << 16
REASONS = {
    NO_RESIZE: "The first transform of the data set is not known to be a resize (torchvision's "
    "Resize or RandomResizedCrop, or timm's, that average pixels), or it has several chains.",
    SMALL: "The images are too small: decoded at one half, they would have fewer pixels than the "
    "first transform asks for, or not twice as many on either side.",
    POSITIONS: "A sample has more than an image and class numbers (boxes, masks, points, other "
    "numbers), which may depend on the positions of pixels.",
}


class FirstResize(NamedTuple):
    """The first transform that changes an image, and what it asks for.

    Args:
        step: the transform.
        height: of its result [pixels]; None where `width` is that of the shorter side.
        width: of its result [pixels].
        max_size: of the longer side [pixels], where only the shorter one is given.
        areas: least and largest share of the image that it may cut out.
        ratios: least and largest width of that over its height; None where it takes the whole.
    """

    step: Any
    height: int | None
    width: int
    max_size: int | None = None
    areas: tuple[float, float] = (1.0, 1.0)
    ratios: tuple[float, float] | None = None

    def factor(self, width: int, height: int, gap: float) -> int:
        """Return by how much an image may be decoded smaller: 8, 4, 2 or 1.

        What is resized has then at least `gap` times the pixels of the result on either side; of
        random crops that holds for the median one, and the least has as many as the result.

        Args:
            width: of the image [pixels].
            height: of the image [pixels].
            gap: as Pillow's `reducing_gap`, 1 or more.
        """
        room = self.room(width, height, gap)
        for factor in FACTORS:
            small = math.ceil(width / factor), math.ceil(height / factor)
            if factor <= room and self.result(width, height) == self.result(*small):
                return factor
        return 1

    def room(self, width: int, height: int, gap: float) -> float:
        """Return by how much each side of the image may shrink."""
        if self.ratios is None:
            sides = (width, height) if self.height else (min(width, height),)
            wanted = (self.width, self.height) if self.height else (self.width,)
            return min(side / (gap * one) for side, one in zip(sides, wanted, strict=True) if one)
        least, largest = (share * width * height for share in self.areas)
        middle, ratio = (least + largest) / 2, math.sqrt(self.ratios[0] * self.ratios[1])
        tall = self.height or self.width
        return min(
            math.sqrt(least * self.ratios[0]) / self.width,
            math.sqrt(least / self.ratios[1]) / tall,
            math.sqrt(middle * ratio) / (gap * self.width),
            math.sqrt(middle / ratio) / (gap * tall),
        )

    def result(self, width: int, height: int) -> tuple[int, int]:
        """Return the sides of the result, which a rounded image must not change."""
        if self.height:
            return self.width, self.height
        short, long = min(width, height), max(width, height)
        sides = self.width, int(self.width * long / short)
        if self.max_size is not None and sides[1] > self.max_size:
            sides = int(self.max_size * sides[0] / sides[1]), self.max_size
        return sides if width <= height else sides[::-1]


def find_first_resize(dataset: Any) -> FirstResize | None:
    """Return what the one chain of a data set does first, if that is a resize; else None."""
    known = CHAINS | RESIZES | CROPS | CONVERTERS
    chains = {
        id(value): value
        for one in chain_of(dataset)
        for value in (vars(one).values() if hasattr(one, "__dict__") else ())
        if name_of(value) in known
    }
    if len(chains) != 1:
        return None
    (chain,) = chains.values()
    steps = flat_steps(chain, MAX_STEPS)
    with suppress(ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return read_step(next(one for one in steps if name_of(one) not in KEEP_PLACES))
    return None


def flat_steps(chain: Any, depth: int) -> Iterable[Any]:
    """Give the transforms of a chain and of those in it, up to a chain that is too deep."""
    if name_of(chain) not in CHAINS:
        yield chain
    elif depth:
        for one in chain.transforms:
            yield from flat_steps(one, depth - 1)
    else:
        yield None


def read_step(step: Any) -> FirstResize | None:
    """Return what a transform asks for; None if it is no resize that averages pixels.

    Whatever an attribute of another form makes Python raise is raised too.
    """
    name = name_of(step)
    if name not in RESIZES | CROPS:
        return None
    is_picked = "nearest" in str(step.interpolation).lower() or step.interpolation == 0
    if is_picked or getattr(step, "antialias", True) is False:
        return None
    size = [step.size] if isinstance(step.size, int) else list(step.size)
    if not all(isinstance(side, int) and side > 0 for side in size) or len(size) not in (1, 2):
        return None
    tall, wide = size if len(size) == 2 else (None, size[0])
    if name in RESIZES:
        return FirstResize(step, tall, wide, getattr(step, "max_size", None))
    (least, largest), (narrow, broad) = step.scale, step.ratio
    if not (0 < least <= largest <= 1 and 0 < narrow <= broad):
        return None
    return FirstResize(step, tall, wide, None, (least, largest), (narrow, broad))


def scaled_decoding_of(dataset: Any, image_sizes: Iterable[tuple[int, int]] = ()) -> str | None:
    """Return in the words above whether images may be decoded smaller; None where not known.

    Args:
        dataset: what the loader reads.
        image_sizes: of images that were decoded for it; without, files that it lists are opened.
    """
    first = find_first_resize(dataset)
    if first is None:
        return NO_RESIZE
    sizes = list(image_sizes) or listed_sizes(dataset)
    if not sizes:
        return None
    return USABLE if any(first.factor(*size, GAP) > 1 for size in sizes) else SMALL


def listed_sizes(dataset: Any) -> list[tuple[int, int]]:
    """Return the sizes of some JPEG files that a data set lists; their headers are read alone."""
    found = []
    with suppress(ImportError, RuntimeError):
        image_module = import_module("PIL.Image")
        for one in chain_of(dataset):
            for place, name in enumerate(islice(listed_names(one), MAX_NAMES)):
                is_wanted = not place & (place - 1)  # 0, 1, 2, 4, 8: in several classes
                with suppress(OSError, SyntaxError, TypeError, ValueError):
                    if is_wanted and os.path.isfile(name):
                        with image_module.open(name) as image:
                            found.append(image.size)
    return found


def is_of_classes(sample: Any) -> bool:
    """Return whether a sample is one image, and beside it numbers of classes and names alone."""
    parts = list(sample.values()) if isinstance(sample, dict) else sample
    parts = list(parts) if isinstance(parts, (tuple, list)) else [parts]
    others = [part for part in parts if not is_image(part)]
    return len(parts) - len(others) == 1 and all(is_class(part) for part in others)


def is_image(value: Any) -> bool:
    """Return whether a value is an image: of Pillow, three-dimensional, or one that waits."""
    if type(value).__name__ == "UnfinishedImage":  # of `batched_transform`; it refuses questions
        return True
    is_pillow = hasattr(value, "getbands") and hasattr(value, "size")
    return is_pillow or len(getattr(value, "shape", ())) == 3


def is_class(value: Any) -> bool:
    """Return whether a value is a whole number or a name."""
    if value is None or isinstance(value, (bool, int, str, bytes)):
        return True
    return getattr(value, "shape", None) in ((), (1,)) and "int" in str(value.dtype)


def why_not_scaled(loader: LoaderFacts) -> str | None:
    """Return why a loader's images cannot be decoded smaller; None if they may, or not known."""
    if loader.is_iterable:
        return "The data set is a stream: which images make a sample is not to be seen."
    return REASONS.get(loader.scaled_decoding or "")
