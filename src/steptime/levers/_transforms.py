"""Applies the end of a chain of torchvision's transforms to a batch instead of to each sample.

This is no lever, as it has no `LEVER`. The chain's last steps that draw nothing and treat each
image alike (ToTensor, Normalize and the like) wait until the batch is joined; whatever is before
them, random draws included, is called as ever, in the same order.
"""

from __future__ import annotations

import functools
import random
import sys
import threading
from collections.abc import Callable
from typing import Any

from ._datasets import EVERY, content_of, samples_of

V1, V2 = "torchvision.transforms.transforms.", "torchvision.transforms.v2."
CONVERTERS = frozenset(
    (
        *(f"{V1}ToTensor", f"{V1}PILToTensor", f"{V2}_deprecated.ToTensor"),
        *(f"{V2}_type_conversion.ToImage", f"{V2}_type_conversion.PILToTensor"),
    )
)
"""They make a tensor of an image."""

SCALING = frozenset((f"{V1}ToTensor", f"{V2}_deprecated.ToTensor"))
BATCHED = frozenset(
    (
        *(V1 + name for name in ("Normalize", "ConvertImageDtype", "Resize", "CenterCrop")),
        *(f"{V2}_misc.{name}" for name in ("Normalize", "ToDtype", "ConvertImageDtype")),
        *(f"{V2}_geometry.{name}" for name in ("Resize", "CenterCrop")),
        f"{V2}_type_conversion.ToPureTensor",
    )
)
"""They draw nothing and take batches of images too."""

CHAINS = frozenset((f"{V1}Compose", f"{V2}_container.Compose"))
MODES = ("L", "RGB", "RGBA")
"""Pillow's modes of 8 bits a channel."""

NUM_CHECKED = 2
"""Batches that are also made sample by sample and compared, before it is one in `EVERY`."""

CHUNK_BYTES = 1 << 20
"""Of a batch's floats at once: what is worked on stays in a core's cache."""

ERRORS = (
    *(ArithmeticError, AssertionError, AttributeError),
    *(LookupError, RuntimeError, TypeError, ValueError),
)
"""What a data set may raise that does something with an image which waits."""

MAX_CHAINS = 50
"""A script that makes a chain for each sample is left alone."""


def name_of(step: Any) -> str:
    """Return the name of an object's class, with its module."""
    return f"{type(step).__module__}.{type(step).__qualname__}"


def steps_of(chain: Any) -> list[Any]:
    """Return the transforms of a chain; a single one is a chain of one."""
    return list(chain.transforms) if name_of(chain) in CHAINS else [chain]


def split(steps: list[Any]) -> tuple[list[Any], list[Any]]:
    """Return the steps for each sample, and those at the end that a batch can take."""
    place = len(steps)
    while place and name_of(steps[place - 1]) in BATCHED:
        place -= 1
    if place and name_of(steps[place - 1]) in CONVERTERS:
        place -= 1
    return steps[:place], steps[place:]


@functools.cache
def waiting_class(torch: Any) -> Any:
    """Return the class of what stands for a chain's result until the batch is joined.

    It is a tensor for `isinstance`, and raises where anything else is done with it.
    """

    class UnfinishedImage(torch.Tensor):  # type: ignore[misc]
        chain: TransformChain
        image: Any

        @classmethod
        def __torch_function__(
            cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            raise TypeError(f"{function} on an image whose transforms are not complete")

    return UnfinishedImage


class TransformChain:
    """A chain of transforms, and whether its end gives the same bits for a batch."""

    def __init__(self, torch: Any, owner: Any) -> None:
        self.torch, self.owner = torch, owner
        self.steps = steps_of(owner)
        self.head, self.tail = split(self.steps)
        self.converter = self.tail[0] if self.tail and name_of(self.tail[0]) in CONVERTERS else None
        self.num_batches = 0
        self.is_off = not self.tail

    def is_current(self) -> bool:
        """Return whether the chain has the steps that were split."""
        is_single = name_of(self.owner) not in CHAINS
        return is_single or list(self.owner.transforms) == self.steps

    @property
    def is_checked(self) -> bool:
        """Whether this batch is made both ways."""
        return self.num_batches < NUM_CHECKED or self.num_batches % EVERY == 0

    def image_of(self, image: Any) -> Any:
        """Return the numbers of what the head gave, copied; None if the tail may not have them."""
        if self.converter is None:
            return image.clone() if isinstance(image, self.torch.Tensor) else None
        if getattr(image, "mode", None) in MODES and hasattr(image, "getbands"):
            return sys.modules["numpy"].array(image)
        return None

    def wait(self, image: Any) -> Any:
        """Return what stands for the chain's result."""
        waiting = self.torch.empty(0).as_subclass(waiting_class(self.torch))
        waiting.chain, waiting.image = self, image
        return waiting

    def stack(self, images: list[Any]) -> Any:
        """Return images of one shape as rows of a tensor."""
        if self.converter is None:
            return self.torch.stack(images)
        if len(images) == 1:
            return self.torch.from_numpy(images[0]).unsqueeze(0)
        return self.torch.from_numpy(sys.modules["numpy"].stack(images))

    def apply_to(self, rows: Any) -> Any:
        """Return the tail's result for rows: images, or what the head gave as tensors."""
        torch, batch = self.torch, rows
        if self.converter is not None:
            batch = rows.unsqueeze(1) if rows.ndim == 3 else rows.permute(0, 3, 1, 2).contiguous()
            if name_of(self.converter) in SCALING:
                batch = batch.to(torch.get_default_dtype()).div_(255)
        for step in self.tail[self.converter is not None :]:
            batch = self.normalize(step, batch) if self.is_ours(step) else step(batch)
        return batch

    def is_ours(self, step: Any) -> bool:
        """Return whether a step may overwrite what it gets, as the step before it made that."""
        return self.converter is not None and name_of(step) == f"{V1}Normalize"

    def normalize(self, step: Any, batch: Any) -> Any:
        """Return what Normalize gives, in the place of what it gets."""
        functional = sys.modules["torchvision.transforms.functional"]
        return functional.normalize(batch, step.mean, step.std, inplace=True)

    def make(self, num: int, num_values: int, take: Callable[[int, int], Any]) -> Any:
        """Return a batch, made in pieces that stay in the cache.

        Args:
            num: its images.
            num_values: numbers in an image.
            take: returns the images from one place to another as rows.
        """
        size = max(1, CHUNK_BYTES // max(1, 4 * num_values))
        if size >= num and self.torch.utils.data.get_worker_info() is None:
            return self.apply_to(take(0, num))
        whole = None
        for first in range(0, num, size):
            part = self.apply_to(take(first, min(num, first + size)))
            if whole is None:
                whole = self.room_for(part, num)
            whole[first : first + size] = part
        return whole

    def room_for(self, part: Any, num: int) -> Any:
        """Return an empty batch; in a worker in shared memory, as torch's collate does."""
        shape = (num, *part.shape[1:])
        if self.torch.utils.data.get_worker_info() is None:
            return self.torch.empty(shape, dtype=part.dtype)
        storage = part._typed_storage()._new_shared(num * part[0].numel(), device=part.device)
        return part.new(storage).resize_(shape)


class BatchReads:
    """What the chains gave while the samples of one batch were read."""

    def __init__(self, chains: TransformChains) -> None:
        self.chains = chains
        self.is_inside = False
        self.has_waiting = False
        self.made: dict[int, tuple[Any, Any]] = {}

    def call(self, owner: Any, image: Any, original: Any) -> Any:
        """Return what a chain makes of an image, or the image that waits for the chain's end."""
        chain = None if self.is_inside else self.chains.find(owner)
        if chain is None or chain.is_off:
            return original(owner, image)
        self.is_inside = True
        try:
            for step in chain.head:
                image = step(image)
            numbers = chain.image_of(image)
            if numbers is not None and not chain.is_checked:
                self.has_waiting = True
                return chain.wait(numbers)
            for step in chain.tail:
                image = step(image)
        finally:
            self.is_inside = False
        if numbers is not None:
            self.made[id(image)] = image, chain.wait(numbers)
        return image

    def collate(self, samples: list[Any]) -> Any:
        """Return the batch, as torch's own collate makes it of whole samples."""
        collate = self.chains.torch.utils.data._utils.collate
        own = collate.default_collate_fn_map
        used: set[TransformChain] = set()

        def join_waiting(waiting: Any, *, collate_fn_map: Any = None) -> Any:
            used.add(waiting[0].chain)
            return join(waiting)

        def join_tensors(tensors: Any, *, collate_fn_map: Any = None) -> Any:
            joined = own[self.chains.torch.Tensor](tensors, collate_fn_map=collate_fn_map)
            made = [self.made.pop(id(tensor), None) for tensor in tensors]
            if None not in made:
                waiting = [one[1] for one in made if one is not None]
                used.add(waiting[0].chain)
                compare(waiting, joined)
            return joined

        table = {
            waiting_class(self.chains.torch): join_waiting,
            self.chains.torch.Tensor: join_tensors,
        }
        batch = collate.collate(samples, collate_fn_map={**table, **own, **table})
        for _, waiting in self.made.values():
            waiting.chain.is_off = True  # the data set made something else of the result
        for chain in used:
            chain.num_batches += 1
        return batch


def join(waiting: list[Any]) -> Any:
    """Return images that wait as one batch; as torch's collate would, it raises where it cannot."""
    chain, images = waiting[0].chain, [one.image for one in waiting]
    if len({tuple(image.shape) for image in images}) > 1:
        return chain.torch.stack([chain.apply_to(chain.stack([one]))[0] for one in images])
    first = images[0]
    num_values = first.size if chain.converter is not None else first.numel()
    return chain.make(len(images), num_values, lambda a, b: chain.stack(images[a:b]))


def compare(waiting: list[Any], joined: Any) -> None:
    """Give a chain up whose batch differs from the one made of samples."""
    chain = waiting[0].chain
    try:
        is_same = all(one.chain is chain for one in waiting)
        is_same = is_same and content_of(join(waiting)) == content_of(joined)
    except (RuntimeError, TypeError, ValueError):
        is_same = False
    for one in waiting:
        one.chain.is_off |= not is_same


class TransformChains:
    """All chains that data sets use, and the batch that this thread reads."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.local = threading.local()
        self.known: dict[int, TransformChain] = {}
        self.undos: list[Any] = []

    def find(self, owner: Any) -> TransformChain | None:
        """Return what is known of a chain, as it is now."""
        if name_of(owner) not in CHAINS:
            return self.find_by(type(owner), owner)  # of no state: a script may make many
        return self.find_by(owner, owner)

    def find_by(self, key: Any, owner: Any) -> TransformChain | None:
        """Return the chain under an object that is kept, so that its id stays its own."""
        known = self.known.get(id(key))
        if known is not None and known.is_current():
            return known
        if len(self.known) > MAX_CHAINS:
            return None
        self.known[id(key)] = TransformChain(self.torch, owner)
        return self.known[id(key)]

    def give_up(self) -> None:
        """Leave all chains alone from now on."""
        for chain in self.known.values():
            chain.is_off = True

    def patch(self) -> None:
        """Let the chains of torchvision ask here, once it is imported."""
        if self.undos:
            return
        for module, class_name, method in (
            ("torchvision.transforms.transforms", "Compose", "__call__"),
            ("torchvision.transforms.transforms", "ToTensor", "__call__"),
            ("torchvision.transforms.v2._container", "Compose", "forward"),
        ):
            owner = getattr(sys.modules.get(module), class_name, None)
            if owner is not None:
                self.undos.append(self.patch_class(owner, method))

    def patch_class(self, owner: Any, method: str) -> Any:
        """Replace a class's method; return what puts it back."""
        original, local = vars(owner)[method], self.local

        def call(chain: Any, *images: Any) -> Any:
            batch = getattr(local, "batch", None)
            if batch is None or len(images) != 1:
                return original(chain, *images)
            return batch.call(chain, images[0], original)

        setattr(owner, method, call)
        return lambda: setattr(owner, method, original)

    def undo(self) -> None:
        """Put all methods back."""
        while self.undos:
            self.undos.pop()()


class ReadInBatches:
    """Takes the place of a data set for the fetcher, and gives collated batches."""

    def __init__(self, chains: TransformChains, dataset: Any) -> None:
        self.chains, self.dataset = chains, dataset

    def __getitems__(self, indices: Any) -> Any:
        """Return a batch, as torch's fetcher and collate make it."""
        batch = self.chains.local.batch = BatchReads(self.chains)
        put_back = keep_random_states(self.chains.torch)
        try:
            return batch.collate(self.read(indices))
        except ERRORS:
            if not batch.has_waiting:
                raise
        finally:
            self.chains.local.batch = None
        self.chains.give_up()  # the data set does something with what waits
        put_back()
        return self.chains.torch.utils.data.default_collate(self.read(indices))

    def read(self, indices: Any) -> list[Any]:
        """Return the data set's own samples."""
        return samples_of(self.dataset, indices)


def keep_random_states(torch: Any) -> Callable[[], None]:
    """Save the states of the generators that everybody shares; return what restores them."""
    numpy = sys.modules.get("numpy")
    mine, torch_state = random.getstate(), torch.get_rng_state()
    numpy_state = numpy.random.get_state() if numpy else None

    def put_back() -> None:
        random.setstate(mine)
        torch.set_rng_state(torch_state)
        if numpy:
            numpy.random.set_state(numpy_state)

    return put_back


def as_it_is(batch: Any) -> Any:
    """Return a batch unchanged, as its collate; workers must be able to pickle this."""
    return batch
