"""All samples of a small data set, made once and kept as the rows of tensors.

This is no lever, as it has no `LEVER`. Torch's own collate says how samples become a batch: it
joins all of them, part by part, and each later batch is one `index_select` of each part.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from itertools import islice
from time import perf_counter
from typing import Any

from .datasets import (
    attributes_of,
    can_be_key,
    chain_of,
    content_of,
    index_of,
    random_states,
    samples_of,
)
from .transforms import keep_random_states
from .whole_batch_fetch import find_whole

CHUNK = 256
"""Samples that are joined at a time: the rows are then written while they are in the cache."""

NUM_SEEN = 8
"""Values at either end of a list that are compared: one that counts in a list is short."""

NUM_CHECKED = 8
"""Samples that are read twice before all are made."""

EVERY = 64
"""Of the batches, one in so many has its first sample made again and compared."""

LIMIT_S = 20.0
"""To make all samples, judged by the first ones; a data set that takes longer stays as it is."""

FAILS = (RuntimeError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError, OSError)


class NotKeptError(Exception):
    """The samples of a data set cannot be kept as rows."""


class Preloaded:
    """Takes the place of a data set for the fetcher, and gives batches that are collated already.

    Args:
        torch: the module.
        dataset: map-style, with samples at 0, 1, ... that torch's own collate joins.
        limit_bytes: what all samples may take.
        clock: [s].

    Raises:
        NotKeptError: samples differ from reading to reading or in shape, or are too many.
        OSError, RuntimeError and others: the data set's own.
    """

    def __init__(
        self,
        torch: Any,
        dataset: Any,
        limit_bytes: int,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self.torch, self.dataset, self.clock = torch, dataset, clock
        self.num_samples, self.num_batches, self.is_off = len(dataset), 0, False
        self.attributes, values = attributes_of(dataset), values_of(dataset)
        if find_whole(torch, dataset) is not None:
            raise NotKeptError("What lies in memory gives whole batches without a copy.")
        self.check(limit_bytes)
        self.shape, self.parts = self.make_all()
        if self.attributes != attributes_of(dataset) or values != values_of(dataset):
            raise NotKeptError("Reading a sample changes the data set.")

    def make(self, indices: list[int]) -> Any:
        """Return a batch as torch's loader makes it."""
        return self.torch.utils.data.default_collate(samples_of(self.dataset, indices))

    def check(self, limit_bytes: int) -> None:
        """Read some samples twice, and see what all of them would take.

        Raises:
            NotKeptError: they differ, draw random numbers, or would take too much.
        """
        num = min(NUM_CHECKED, self.num_samples)
        some = [place * self.num_samples // num for place in range(num)]
        before, began = random_states(self.torch), self.clock()
        _, first = parts_of(self.torch, self.make(some))
        took_s = self.clock() - began
        # One by one: a data set may hand out one buffer again and again.
        singles = [parts_of(self.torch, self.make([index]))[1] for index in some]
        again = [self.torch.cat(parts) for parts in zip(*singles, strict=True)]
        if content_of(first) != content_of(again) or before != random_states(self.torch):
            raise NotKeptError("A sample that is read twice is another one, or draws.")
        size = sum(part.nbytes for part in first) // num
        if size * self.num_samples > limit_bytes:
            raise NotKeptError("The samples take too much memory.")
        if took_s * self.num_samples / num > LIMIT_S:
            raise NotKeptError("Making all samples takes too long.")

    def make_all(self) -> tuple[Any, list[Any]]:
        """Return how a batch is put together, and its parts for all samples.

        Raises:
            NotKeptError: samples differ in shape, draw, or take too long after all.
        """
        torch, num = self.torch, self.num_samples
        began, before = self.clock(), random_states(torch)
        shape: Any = None
        whole: list[Any] = []
        for first in range(0, num, CHUNK):
            found, parts = parts_of(torch, self.make(list(range(first, min(num, first + CHUNK)))))
            if not whole:
                shape = found
                whole = [torch.empty((num, *one.shape[1:]), dtype=one.dtype) for one in parts]
            kinds = [(one.dtype, one.shape[1:]) for one in whole]
            if found != shape or kinds != [(one.dtype, one.shape[1:]) for one in parts]:
                raise NotKeptError("Samples differ in shape.")
            for kept, part in zip(whole, parts, strict=True):
                kept[first : first + len(part)] = part
            if self.clock() - began > 2 * LIMIT_S:
                raise NotKeptError("Making all samples takes too long.")
        if before != random_states(torch):
            raise NotKeptError("A sample draws random numbers.")
        return shape, whole

    def __getitems__(self, indices: Any) -> Any:
        """Return a batch as torch's collate makes it."""
        if self.is_off or not all(type(index) is int for index in indices) or not indices:
            return self.make(indices)
        if min(indices) < 0 or max(indices) >= self.num_samples or not self.is_current(indices[0]):
            return self.make(indices)  # from the end, or beyond it
        index = index_of(self.torch, indices)
        rows = [part.index_select(0, index) for part in self.parts]
        return put_together(self.shape, iter(rows))

    def is_current(self, index: int) -> bool:
        """Return whether the script has left the data set as it was; if not, never again."""
        self.num_batches += 1
        is_same = self.attributes == attributes_of(self.dataset)
        if is_same and self.num_batches % EVERY == 0:
            row = self.torch.tensor([index])
            kept = [part.index_select(0, row) for part in self.parts]
            put_back = keep_random_states(self.torch)
            fresh = parts_of(self.torch, self.make([index]))[1]
            put_back()
            is_same = content_of(kept) == content_of(fresh)
        if not is_same:
            self.is_off, self.parts = True, []
        return is_same


def parts_of(torch: Any, batch: Any) -> tuple[Any, list[Any]]:
    """Return how a batch is put together, and its tensors.

    Raises:
        NotKeptError: something in it is no plain tensor.
    """
    kind = type(batch)
    if kind is torch.Tensor:
        if batch.layout is not torch.strided or batch.requires_grad or batch.device.type != "cpu":
            raise NotKeptError("A part is no plain tensor.")
        return None, [batch]
    if kind in (list, tuple):
        inner = [parts_of(torch, one) for one in batch]
        return (kind, [one for one, _ in inner]), [part for _, some in inner for part in some]
    if kind is dict:
        shape, parts = parts_of(torch, list(batch.values()))
        return (dict, list(batch), shape), parts
    raise NotKeptError(f"A part is of {kind.__name__}.")


def put_together(shape: Any, parts: Any) -> Any:
    """Return a batch of this shape from its tensors."""
    if shape is None:
        return next(parts)
    if shape[0] is dict:
        return dict(zip(shape[1], put_together(shape[2], parts), strict=True))
    kind, inner = shape
    return kind(put_together(one, parts) for one in inner)


def is_plain(value: Any, depth: int = 4) -> bool:
    """Return whether an attribute holds neither a file nor anything that may open one."""
    if isinstance(value, (bool, int, float, str, bytes, range)):
        return True
    if depth == 0:
        return False
    if type(value) in (list, tuple, set, frozenset):
        return all(is_plain(one, depth - 1) for one in islice(value, CHUNK))
    if type(value) is dict:
        return all(is_plain(one, depth - 1) for one in islice(value.values(), CHUNK))
    root = type(value).__module__.partition(".")[0]
    if root in ("torch", "numpy"):
        return type(value).__name__ in ("Tensor", "ndarray", "Size", "dtype") or is_number(value)
    own = getattr(value, "__dict__", None)
    is_of_script = root not in sys.stdlib_module_names
    return is_of_script and type(own) is dict and is_plain(own, depth - 1)


def is_number(value: Any) -> bool:
    """Return whether it is a number of NumPy's."""
    return hasattr(value, "item") and getattr(value, "shape", None) == ()


def is_plain_data(dataset: Any, *, has_workers: bool) -> bool:
    """Return whether a data set, and what it wraps, holds plain values alone.

    Then reading it ahead moves no generator of its own. What it counts is seen by its values.
    Workers that are forked later would share a file that the first read opens: where it has them,
    it may hold no empty place for a file either.
    """
    chain = chain_of(dataset)
    if not all(hasattr(one, "__dict__") for one in chain):
        return False
    values = [value for one in chain for value in vars(one).values()]
    inner = [value for value in values if not any(value is one for one in chain)]
    return all(is_plain(one) for one in inner if one is not None or has_workers)


def values_of(dataset: Any) -> list[Any]:
    """Return the plain values that a data set holds, of containers their first and last ones."""
    return [seen(value) for one in chain_of(dataset) for value in vars(one).values()]


def seen(value: Any, depth: int = 4) -> Any:
    """Return what would show that a value was changed in its place."""
    if isinstance(value, (bool, int, float, str, bytes)) or depth == 0:
        return value if depth else id(value)
    if type(value) is dict:
        value = list(islice(value.items(), NUM_SEEN))
    if type(value) in (list, tuple):
        ends = [*value[:NUM_SEEN], *value[-NUM_SEEN:]]
        return len(value), [seen(one, depth - 1) for one in ends]
    own = getattr(value, "__dict__", None)
    return id(value), seen(own, depth - 1) if type(own) is dict else None


class Stores:
    """What was made of the data sets of loaders that fed training."""

    def __init__(self, torch: Any, limit_bytes: int) -> None:
        self.torch, self.left_bytes = torch, limit_bytes
        self.known: weakref.WeakKeyDictionary[Any, Preloaded | None] = weakref.WeakKeyDictionary()

    def find(self, loader: Any) -> Preloaded | None:
        """Return the samples of a loader's data set; None if they cannot be kept."""
        if not self.may_have(loader):
            return None
        dataset = loader.dataset
        if dataset not in self.known and self.torch.is_grad_enabled():
            self.known[dataset] = self.make(dataset, has_workers=loader.num_workers > 0)
        found = self.known.get(dataset)
        return None if found is None or found.is_off else found

    def may_have(self, loader: Any) -> bool:
        """Return whether torch's own collate makes batches of the loader's samples here."""
        data = self.torch.utils.data
        dataset = loader.dataset
        return (
            loader.collate_fn is data.default_collate
            and loader.batch_sampler is not None
            and loader.worker_init_fn is None
            and not isinstance(dataset, data.IterableDataset)
            and data.get_worker_info() is None
            and hasattr(dataset, "__len__")
            and can_be_key(dataset)
        )

    def make(self, dataset: Any, *, has_workers: bool) -> Preloaded | None:
        """Make the samples of a data set; None if they cannot be kept."""
        if not len(dataset) or not is_plain_data(dataset, has_workers=has_workers):
            return None
        put_back = keep_random_states(self.torch)
        try:
            found = Preloaded(self.torch, dataset, self.left_bytes)
        except (NotKeptError, *FAILS):
            return None  # the data set is the script's own, and read as before
        finally:
            put_back()
        self.left_bytes -= sum(part.nbytes for part in found.parts)
        return found
