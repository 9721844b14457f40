"""Times what a data set does for a sample: decoding, and each transform of a chain by its name.

For a process that soon ends: modules and objects of the script's are changed in place.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from math import prod
from typing import Any

from ..late_finder import LateFinder
from .part_timer import PartTimer
from .transform_places import TRANSFORMS, code_place, element_place, made_at

IMAGES = ("read_image", "decode_image", "decode_jpeg", "decode_png", "decode_webp", "decode_gif")
DECODERS: dict[str, tuple[str, ...]] = {
    "PIL.Image": ("open",),
    "simplejpeg": ("decode_jpeg",),
    "cv2": ("imread", "imdecode"),
    "torchvision.io": IMAGES,
    "torchvision.io.image": IMAGES,
    "imageio.v2": ("imread",),
    "imageio.v3": ("imread",),
    "skimage.io": ("imread",),
    "tifffile": ("imread",),
    "soundfile": ("read",),
    "torchaudio": ("load",),
}
CHAINS = ("torchvision.transforms.transforms", "torchvision.transforms.v2._container")
NAMES = ("transform", "transforms", "target_transform", "preprocess", "augment", "augmentations")
MAX_DEPTH = 4

Note = Callable[[Any], None]


class Transforms:
    """The transforms that were found; each is a part `transform:N` of the timer."""

    def __init__(self, timer: PartTimer) -> None:
        self.timer = timer
        self.found: list[dict[str, Any]] = []
        self.chains: list[Any] = []  # those that were wrapped, kept so that no id is used again

    def take_chain(self, chain: Any) -> None:
        """Time each element of a chain: an object with a list `transforms`, as Compose is."""
        if any(one is chain for one in self.chains):
            return
        self.chains.append(chain)
        for index, element in enumerate(chain.transforms):
            if is_chain(element):
                self.take_chain(element)
            elif not isinstance(element, TimedTransform):
                place = element_place(chain, index) or code_place(element)
                chain.transforms[index] = self.wrap(element, place)

    def wrap(self, call: Any, place: str | None = None) -> TimedTransform:
        """Return a transform that is timed under its name."""
        number = len(self.found)
        self.found.append({"name": name_of(call), "place": place})
        return TimedTransform(call, self.timer.timed(f"transform:{number}", call))

    def take_dataset(self, dataset: Any, depth: int = 0) -> None:
        """Time the transforms that a data set holds, or one inside it."""
        for name, value in list(getattr(dataset, "__dict__", {}).items()):
            if name.lstrip("_") in NAMES and callable(value):
                if is_chain(value):
                    self.take_chain(value)
                elif depth < MAX_DEPTH and holds_transforms(value):
                    self.take_dataset(value, depth + 1)
                else:
                    setattr(dataset, name, self.wrap(value, code_place(value)))
            elif depth < MAX_DEPTH:
                for inner in value if isinstance(value, (list, tuple)) else (value,):
                    if is_dataset(inner):
                        self.take_dataset(inner, depth + 1)

    def hook_chains(self) -> None:
        """Take each chain of torchvision's at its first call, wherever the script keeps it."""
        when_imported({**dict.fromkeys(CHAINS, self.hook_chain), TRANSFORMS: self.hook_transforms})

    def hook_chain(self, module: Any) -> None:
        """Take the chains of one module."""
        chain_class = getattr(module, "Compose", None)
        if chain_class is not None:
            method = "forward" if "forward" in vars(chain_class) else "__call__"
            setattr(chain_class, method, self.taking(getattr(chain_class, method)))

    def taking(self, original: Any) -> Any:
        """Return the call of a chain, which is wrapped before the first one."""

        def call(chain: Any, *args: Any, **kwargs: Any) -> Any:
            self.take_chain(chain)
            return original(chain, *args, **kwargs)

        return call

    def hook_transforms(self, module: Any) -> None:
        """Time the transforms of albumentations by their class: their chains look at elements."""
        base = getattr(module, "BasicTransform", None)
        if base is None:
            return
        original, numbers = base.__call__, dict[int, str]()

        def call(transform: Any, *args: Any, **kwargs: Any) -> Any:
            part = numbers.get(id(transform))
            if part is None:
                part = numbers[id(transform)] = f"transform:{len(self.found)}"
                self.found.append({"name": name_of(transform), "place": made_at(transform)})
                self.chains.append(transform)
            self.timer.enter(part)
            try:
                return original(transform, *args, **kwargs)
            finally:
                self.timer.leave()

        base.__call__ = call


class TimedTransform:
    """A transform that is timed; for whoever asks, it has the attributes of the script's own."""

    def __init__(self, own: Any, timed: Callable[..., Any]) -> None:
        self.own = own
        self.timed = timed

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Transform, timed."""
        return self.timed(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.own, name)


def is_chain(value: Any) -> bool:
    """Return whether this is a chain of transforms, one after the other."""
    has_list = isinstance(getattr(value, "transforms", None), list)
    return has_list and type(value).__name__.endswith(("Compose", "Sequential"))


def is_dataset(value: Any) -> bool:
    """Return whether this is a data set of torch's kind."""
    return any(base.__name__ == "Dataset" for base in type(value).__mro__)


def holds_transforms(value: Any) -> bool:
    """Return whether this only holds transforms, as torchvision's `StandardTransform` does."""
    return type(value).__name__ == "StandardTransform"


def name_of(call: Any) -> str:
    """Return the name of a function, or of the class of an object that is called."""
    name = getattr(call, "__qualname__", None) or type(call).__name__
    return str(name).rpartition("<locals>.")[2]


# -- decoding


def when_imported(acts: dict[str, Callable[[Any], None]]) -> None:
    """Do something to each module: now, or once it is imported, as a worker alone may do it."""
    finder = LateFinder()
    finder.targets.update(acts)
    sys.meta_path.insert(0, finder)
    for name in acts:
        if name in sys.modules:
            finder.call(name, sys.modules[name])


def hook_decoders(timer: PartTimer, note_file: Note) -> None:
    """Time the decoders of the libraries, wherever and whenever the script gets them."""

    def hook(module: Any) -> None:
        replaced: dict[int, tuple[Any, Any]] = {}
        for name in DECODERS.get(module.__name__, ()):
            original = getattr(module, name, None)
            if callable(original) and not hasattr(original, "is_timed_part"):
                replaced[id(original)] = original, decoding(timer, original, note_file)
        for holder in list(sys.modules.values()):
            for name, value in list(getattr(holder, "__dict__", {}).items()):
                own = replaced.get(id(value))
                if own is not None and own[0] is value:
                    setattr(holder, name, own[1])
        if module.__name__ == "PIL.Image":
            module.preinit()  # Pillow imports its formats when it opens the first image
            module.init()
            for image_class in lazy_images():
                image_class.load = timer.timed("decode", image_class.load)

    when_imported(dict.fromkeys(DECODERS, hook))


def decoding(timer: PartTimer, original: Any, note_file: Note) -> Any:
    """Return a decoder that is timed; a file that is given by its path may be opened unseen."""

    def decode(*args: Any, **kwargs: Any) -> Any:
        if args and isinstance(args[0], str):
            note_file(args[0])
        timer.enter("decode")
        try:
            return original(*args, **kwargs)
        finally:
            timer.leave()

    decode.is_timed_part = True  # type: ignore[attr-defined]
    return decode


def lazy_images() -> Iterator[Any]:
    """Yield the classes of Pillow's whose images are decoded when they are first used."""
    base = getattr(sys.modules.get("PIL.ImageFile"), "ImageFile", None)
    classes = [] if base is None else [base]
    while classes:
        image_class = classes.pop()
        if "load" in vars(image_class):
            yield image_class
        classes += image_class.__subclasses__()


class ChunkReads:
    """What is asked of chunked HDF5, and how much the chunks hold that are decoded for it [bytes].

    Source: docs.h5py.org, "Chunked storage": a chunk is read and decoded as a whole.
    """

    def __init__(self) -> None:
        self.asked = self.chunks = 0
        when_imported({"h5py": self.hook})

    def hook(self, module: Any) -> None:
        """Watch what is read."""
        original = module.Dataset.__getitem__

        def read(dataset: Any, *args: Any, **kwargs: Any) -> Any:
            found = original(dataset, *args, **kwargs)
            asked, chunk = getattr(found, "nbytes", 0), getattr(dataset, "chunks", None)
            if asked and chunk:
                self.asked += asked
                self.chunks += max(asked, prod(chunk) * dataset.dtype.itemsize)
            return found

        module.Dataset.__getitem__ = read
