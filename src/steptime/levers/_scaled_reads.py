"""Lets libjpeg decode an image smaller where the transform that follows makes it smaller still.

This is no lever, as it has no `LEVER`. Each image that was decoded smaller must reach the known
transform as it was decoded, within the read of its batch; the pixels of some are compared. Where
one does not, or a sample has more than class numbers, the batch is read again from whole images,
with the random states of before, and that data set is left alone in this process.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ._datasets import EVERY, samples_of
from ._first_resize import FirstResize, find_first_resize, is_of_classes
from ._transforms import ERRORS, keep_random_states

NUM_COMPARED = 4
"""Images of a data set in each process whose pixels are compared, before it is one in `EVERY`."""

MODES = ("L", "RGB", "CMYK")


class ScaledRead:
    """What is decoded while one batch is read, and what reached the transform."""

    def __init__(self, first: FirstResize, num_before: int) -> None:
        self.first, self.num_scaled = first, num_before
        self.waiting: list[tuple[tuple[int, int], Any]] = []
        self.has_scaled = self.is_broken = False

    def note(self, image: Any) -> None:
        """Note an image that was decoded smaller."""
        self.num_scaled += 1
        self.has_scaled = True
        is_compared = self.num_scaled <= NUM_COMPARED or self.num_scaled % EVERY == 0
        self.waiting.append((image.size, image.copy() if is_compared else None))

    def take(self, given: Any) -> None:
        """Note what the transform was given."""
        if not self.waiting:
            return
        size = size_of(given)
        place = next((i for i, (known, _) in enumerate(self.waiting) if known == size), None)
        if place is None:
            self.is_broken = True
            return
        _, kept = self.waiting.pop(place)
        self.is_broken |= kept is not None and not has_pixels(given, kept)

    def is_good(self, samples: Any) -> bool:
        """Return whether all images went straight to the transform and on to a class number."""
        if not self.has_scaled:
            return True
        return not (self.is_broken or self.waiting) and all(map(is_of_classes, samples))


def size_of(image: Any) -> tuple[int, int] | None:
    """Return width and height of an image of Pillow or of a tensor."""
    if hasattr(image, "getbands"):
        width, height = image.size
        return width, height
    shape: Any = getattr(image, "shape", ())
    return (shape[-1], shape[-2]) if len(shape) > 1 else None


def has_pixels(given: Any, kept: Any) -> bool:
    """Return whether an image, or a tensor of bytes, has the pixels of an image of Pillow."""
    if hasattr(given, "getbands"):
        return bool(kept.convert(given.mode).tobytes() == given.tobytes())
    mode = {1: "L", 3: "RGB"}.get(given.shape[0])
    if mode is None or str(given.dtype) != "torch.uint8":
        return False
    pixels = given.permute(1, 2, 0).contiguous().numpy().tobytes()
    return bool(kept.convert(mode).tobytes() == pixels)


class ScaledImages:
    """Loads JPEG images for Pillow, smaller while a data set is read whose transform allows it.

    Args:
        image_class: Pillow's class of JPEG images.
        gap: how much larger than the result an image stays; see `FirstResize.factor`.
        load: Pillow's own `load`, or what is around it.
    """

    depth = 0

    def __init__(self, image_class: Any, gap: float, load: Any) -> None:
        self.image_class, self.gap, self.own_load = image_class, gap, load
        self.local = threading.local()
        self.nums: dict[int, int] = {}
        self.off: dict[int, Any] = {}
        self.undos: dict[Any, Callable[[], None]] = {}

    def load(self, image: Any) -> Any:
        """Load an image; what Pillow's own `load` returns and leaves behind."""
        read = getattr(self.local, "read", None)
        is_whole = type(image) is self.image_class and image.tile and image.decoderconfig == ()
        if read is None or not is_whole or image.mode not in MODES:
            return self.own_load(image)
        width, height = image.size
        factor = read.first.factor(width, height, self.gap)
        if factor == 1:
            return self.own_load(image)
        image.draft(None, (width // factor, height // factor))
        result = self.own_load(image)
        read.note(image)
        return result

    def find(self, dataset: Any) -> FirstResize | None:
        """Return the first transform of a data set that was not given up."""
        first = find_first_resize(dataset)
        return None if first is None or id(first.step) in self.off else first

    @contextmanager
    def reading(self, first: FirstResize | None) -> Iterator[Any]:
        """Decode smaller meanwhile, for a transform; it gives what is noted of it."""
        before = getattr(self.local, "read", None)
        read = None if first is None else ScaledRead(first, self.nums.get(id(first.step), 0))
        self.local.read = read
        try:
            yield read
        finally:
            self.local.read = before

    def ahead(self, dataset: Any) -> Any:
        """Return a context in which images are decoded as they will be for a data set."""
        return self.reading(self.find(dataset))

    def read(self, read_all: Callable[[], Any], first: FirstResize, torch: Any) -> Any:
        """Return a batch's samples, from images that are decoded smaller where they may be."""
        if id(first.step) in self.off:
            return read_all()
        self.watch(type(first.step))
        put_back = keep_random_states(torch)
        with self.reading(first) as read:
            try:
                samples = read_all()
                is_good = read.is_good(samples)
            except ERRORS:
                if not read.has_scaled:
                    raise
                is_good = False
        if is_good:
            self.nums[id(first.step)] = read.num_scaled
            return samples
        self.off[id(first.step)] = first.step  # kept, so that its id stays its own
        put_back()
        return read_all()

    def watch(self, step_class: Any) -> None:
        """Let a class of transforms tell what it is given."""
        if step_class in self.undos:
            return
        name = "forward" if hasattr(step_class, "forward") else "__call__"
        before, original = vars(step_class).get(name), getattr(step_class, name)
        local = self.local

        @functools.wraps(original)
        def call(step: Any, *images: Any, **others: Any) -> Any:
            read = getattr(local, "read", None)
            if read is not None and step is read.first.step and images:
                image = images[0]
                read.take(image[0] if isinstance(image, (tuple, list)) and image else image)
            return original(step, *images, **others)

        def undo() -> None:
            if before is None:
                delattr(step_class, name)
            else:
                setattr(step_class, name, before)

        setattr(step_class, name, call)
        self.undos[step_class] = undo

    def undo(self) -> None:
        """Put the transforms back."""
        while self.undos:
            self.undos.popitem()[1]()


class ScaledReads:
    """Takes the place of a data set for the fetcher.

    Args:
        scaled: decodes the images.
        dataset: what is read.
        first: its first transform.
        torch: the module.
    """

    def __init__(self, scaled: ScaledImages, dataset: Any, first: FirstResize, torch: Any) -> None:
        self.scaled, self.dataset, self.first, self.torch = scaled, dataset, first, torch

    def __getitems__(self, indices: Any) -> Any:
        """Return the samples of a batch."""
        return self.scaled.read(lambda: self.read(indices), self.first, self.torch)

    def read(self, indices: Any) -> list[Any]:
        """Return the data set's own samples."""
        return samples_of(self.dataset, indices)
