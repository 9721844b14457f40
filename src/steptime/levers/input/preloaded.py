"""The samples of a small data set, made once and kept as the rows of tensors.

This is no lever, as it has no `LEVER`. The loader's collate says how samples become a batch; where
that is one row of each, a later batch is one `index_select` of each part. They are kept as the
first epoch makes them, in the loader's order, or all of them before.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from itertools import islice
from time import perf_counter
from types import FunctionType, MethodType
from typing import Any

from ..tools.forked_copy import do_apart, file_condition
from ..tools.generators import Generators
from .datasets import (
    attributes_of,
    can_be_key,
    chain_of,
    content_of,
    index_of,
    samples_of,
    spread,
)
from .whole_batch_fetch import find_whole

CHUNK = 256
"""Samples that are joined at a time: the rows are then written while they are in the cache."""

NUM_SEEN = 8
"""Values at either end of a list that are compared: one that counts in a list is short."""

NUM_CHECKED = 8
"""Samples that are read twice before all are made."""

NUM_FIRST, EVERY = 16, 64
"""Of the batches that are taken out, the first 16 and one in 64 have a sample made again.

Where it is not torch's own collate that joins them, the whole batch is made again."""

LIMIT_S = 20.0
"""To make all samples, judged by the first ones; a data set that takes longer stays as it is."""

FAILS = (RuntimeError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError, OSError)


class NotKeptError(Exception):
    """The samples of a data set cannot be kept as rows."""


class Preloaded:
    """Takes the place of a data set for the fetcher, and gives batches that are collated already.

    Args:
        torch: the module.
        dataset: map-style, with samples at 0, 1, ...
        limit_bytes: what all samples may take.
        collate: makes a batch of samples; torch's own by default.
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
        collate: Any = None,
    ) -> None:
        self.torch, self.clock = torch, clock
        own = torch.utils.data.default_collate
        self.has_own_collate = collate is not None and collate is not own
        # A method's object may be the data set, which must go when the script drops it.
        is_method = isinstance(collate, MethodType)
        self.collate: Any = weakref.WeakMethod(collate) if is_method else lambda: collate or own
        self.reference = weakref.ref(dataset)  # what is kept goes when the data set does
        self.num_samples, self.num_batches, self.is_off = len(dataset), 0, False
        self.attributes = attributes_of(dataset)
        self.generators = Generators(torch, chain_of(dataset))
        if find_whole(torch, dataset) is not None:
            raise NotKeptError("What lies in memory gives whole batches without a copy.")
        answer = read_apart(torch, lambda: self.why_not(limit_bytes), limit_s=LIMIT_S)
        if answer["error"]:
            raise NotKeptError(answer["error"])
        self.num_bytes = answer["num_bytes"]
        self.is_made = bytearray(self.num_samples)
        self.shape: Any = None
        self.parts: list[Any] = []

    @property
    def dataset(self) -> Any:
        """The data set, while it lives."""
        return self.reference()

    def make(self, indices: list[int]) -> Any:
        """Return a batch as torch's loader makes it."""
        return self.collate()(samples_of(self.dataset, indices))

    def condition(self, *, has_files: bool = False) -> DataCondition:
        """Return what shows whether reading changes something; its generators are found once."""
        return DataCondition(self.dataset, self.generators, has_files=has_files)

    def why_not(self, limit_bytes: int) -> dict[str, Any]:
        """Read some samples twice: return why the samples may not be kept, or what they take."""
        some = spread(self.num_samples, NUM_CHECKED)
        num = len(some)
        self.make(some[:1])  # the first reading imports, warns, and opens what stays open
        condition, began = self.condition(has_files=True), self.clock()
        _, first = parts_of(self.torch, self.make(some))
        took_s = self.clock() - began
        # One by one: a data set may hand out one buffer again and again.
        again = rows_of(self.torch, self.make, some)
        if not all(len(part) == num for part in first):
            return {"error": "A batch is not one row of each sample."}
        if content_of(first) != content_of(again) or not condition.is_as_before():
            return {"error": "A sample read twice is another one, or reading it changes something."}
        size = sum(part.nbytes for part in first) // num
        if size * self.num_samples > limit_bytes:
            return {"error": "The samples take too much memory."}
        if took_s * self.num_samples / num > LIMIT_S:
            return {"error": "Making all samples takes too long."}
        return {"error": "", "num_bytes": size * self.num_samples}

    def make_all(self) -> None:
        """Make all samples before they are asked for.

        Raises:
            NotKeptError: samples differ in shape, take too long after all, or draw.
        """
        condition, began = self.condition(), self.clock()
        try:
            for first in range(0, self.num_samples, CHUNK):
                indices = list(range(first, min(self.num_samples, first + CHUNK)))
                self.keep(indices, self.make(indices))
                if self.clock() - began > 2 * LIMIT_S:
                    raise NotKeptError("Making all samples takes too long.")
            if not condition.is_as_before():
                raise NotKeptError("Reading a sample changes the data set, or draws.")
        finally:
            condition.put_back()

    def keep(self, indices: list[int], batch: Any) -> None:
        """Keep the samples of a batch.

        Raises:
            NotKeptError: samples differ in shape.
        """
        torch, num = self.torch, self.num_samples
        shape, parts = parts_of(torch, batch)
        if not self.parts:  # memory is taken only where rows are written
            self.shape = shape
            self.parts = [torch.empty((num, *one.shape[1:]), dtype=one.dtype) for one in parts]
        kinds = [(one.dtype, one.shape[1:]) for one in self.parts]
        if shape != self.shape or kinds != [(one.dtype, one.shape[1:]) for one in parts]:
            raise NotKeptError("Samples differ in shape.")
        index = index_of(torch, indices)
        for kept, part in zip(self.parts, parts, strict=True):
            kept.index_copy_(0, index, part)
        for one in indices:
            self.is_made[one] = 1

    def make_and_keep(self, indices: list[int]) -> Any:
        """Return a batch as the data set makes it, and keep it where that changed nothing."""
        condition = self.condition()
        batch = self.make(indices)
        try:
            if condition.is_as_before():
                self.keep(indices, batch)
            else:
                self.give_up()
        except (NotKeptError, RuntimeError):
            self.give_up()
        return batch

    def __getitems__(self, indices: Any) -> Any:
        """Return a batch as torch's collate makes it."""
        if self.is_off or not all(type(index) is int for index in indices) or not indices:
            return self.make(indices)
        if min(indices) < 0 or max(indices) >= self.num_samples or not self.is_current(indices):
            return self.make(indices)  # from the end, or beyond it
        if not all(self.is_made[index] for index in indices):
            return self.make_and_keep(indices)
        return put_together(self.shape, iter(self.rows(indices)))

    def rows(self, indices: list[int]) -> list[Any]:
        """Return what is kept of these samples."""
        index = index_of(self.torch, indices)
        return [part.index_select(0, index) for part in self.parts]

    def is_current(self, indices: list[int]) -> bool:
        """Return whether the script has left the data set as it was; if not, never again."""
        is_same = self.attributes == attributes_of(self.dataset)
        if is_same and all(self.is_made[index] for index in indices):
            self.num_batches += 1
            if self.num_batches <= NUM_FIRST or self.num_batches % EVERY == 0:
                is_same = self.is_as_kept(indices if self.has_own_collate else indices[:1])
        if not is_same:
            self.give_up()
        return is_same

    def is_as_kept(self, indices: list[int]) -> bool:
        """Make some samples again, and compare those that are kept."""
        condition = self.condition()
        try:
            fresh = parts_of(self.torch, self.make(indices))[1]
            kept = self.rows(indices)
            return condition.is_as_before() and content_of(kept) == content_of(fresh)
        except NotKeptError:
            return False
        finally:
            condition.put_back()

    def give_up(self) -> None:
        """Leave the data set alone from here on."""
        self.is_off, self.parts = True, []


def read_apart(torch: Any, read: Callable[[], dict[str, Any]], *, limit_s: float) -> dict[str, Any]:
    """Return what `read` returns in a forked copy, where torch has one thread as in workers."""

    def read_alone() -> dict[str, Any]:
        torch.set_num_threads(1)
        return read()

    if not sys.platform.startswith("linux"):
        return {"error": "Elsewhere a forked copy of a process with threads may not go on."}
    return do_apart(read_alone, limit_s=limit_s)


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


def is_stateless(dataset: Any, collate: Any) -> bool:
    """Return whether a collate is a plain function, or a method of a data set that is watched."""
    if isinstance(collate, MethodType):
        return any(collate.__self__ is one for one in chain_of(dataset))
    return isinstance(collate, FunctionType) and not collate.__closure__


def joins_rows(torch: Any, loader: Any, samples: list[Any]) -> bool:
    """Return whether a loader's batch is what each sample gives by itself, row by row."""
    collate = loader.collate_fn
    if loader.batch_sampler is None or not is_stateless(loader.dataset, collate):
        return False
    try:
        _, whole = parts_of(torch, collate(samples))
        rows = rows_of(torch, collate, samples)
    except (NotKeptError, *FAILS):
        return False
    is_each = all(len(part) == len(samples) for part in whole)
    return is_each and content_of(whole) == content_of(rows)


def rows_of(torch: Any, make: Callable[[list[Any]], Any], items: list[Any]) -> list[Any]:
    """Return the tensors of the batches that each item makes by itself, one below the other."""
    singles = [parts_of(torch, make([one]))[1] for one in items]
    return [torch.cat(parts) for parts in zip(*singles, strict=True)]


def put_together(shape: Any, parts: Any) -> Any:
    """Return a batch of this shape from its tensors."""
    if shape is None:
        return next(parts)
    if shape[0] is dict:
        return dict(zip(shape[1], put_together(shape[2], parts), strict=True))
    kind, inner = shape
    return kind(put_together(one, parts) for one in inner)


class DataCondition:
    """Values and generators of a data set, the generators that everybody shares, and open files.

    Files are compared only in a forked copy: in the training, other threads read and write files.
    """

    def __init__(self, dataset: Any, generators: Generators, *, has_files: bool) -> None:
        self.dataset, self.generators, self.has_files = dataset, generators, has_files
        self.put_back = generators.keep()
        self.before = self.now()

    def now(self) -> Any:
        """Return what would show that reading changed any of them."""
        files = file_condition() if self.has_files else None
        values = attributes_of(self.dataset), values_of(self.dataset)
        return values, self.generators.states(), files

    def is_as_before(self) -> bool:
        """Return whether all is as it was when this was made."""
        return bool(self.before == self.now())


def values_of(dataset: Any) -> list[Any]:
    """Return the plain values that a data set holds, of containers their first and last ones."""
    return [seen(value) for one in chain_of(dataset) for value in vars(one).values()]


def seen(value: Any, depth: int = 4) -> Any:
    """Return what would show that a value was changed in its place."""
    if isinstance(value, (bool, int, float, str, bytes)):
        return value
    if depth == 0:
        return id(value)
    if type(value) is dict:
        few = [one for item in islice(value.items(), NUM_SEEN) for one in item]
        return len(value), [seen(one, depth - 1) for one in few]
    if type(value) in (list, tuple):
        ends = [*value[:NUM_SEEN], *value[-NUM_SEEN:]]
        return len(value), [seen(one, depth - 1) for one in ends]
    own = getattr(value, "__dict__", None)
    return id(value), seen(own, depth - 1) if type(own) is dict else None


class Stores:
    """What was made of the data sets of loaders that fed training.

    Args:
        torch: the module.
        limit_bytes: what all samples may take.
        is_ahead: all samples are made as soon as one is asked for.
    """

    def __init__(self, torch: Any, limit_bytes: int, *, is_ahead: bool) -> None:
        self.torch, self.limit_bytes, self.is_ahead = torch, limit_bytes, is_ahead
        self.known: weakref.WeakKeyDictionary[Any, Preloaded | None] = weakref.WeakKeyDictionary()

    def find(self, loader: Any) -> Preloaded | None:
        """Return the samples of a loader with workers; None if they cannot be kept."""
        data = self.torch.utils.data
        is_known = (
            loader.batch_sampler is not None
            and loader.worker_init_fn is None
            and not isinstance(loader.dataset, data.IterableDataset)
        )
        return self.of(loader.dataset, loader.collate_fn, is_ahead=True) if is_known else None

    def of(self, dataset: Any, collate: Any, *, is_ahead: bool) -> Preloaded | None:
        """Return the samples of a data set, if they may be kept and training reads them here."""
        is_here = self.torch.utils.data.get_worker_info() is None
        if not (is_here and can_be_key(dataset) and hasattr(dataset, "__len__")):
            return None
        if dataset not in self.known and self.torch.is_grad_enabled():
            self.known[dataset] = self.make(dataset, collate, is_ahead=is_ahead or self.is_ahead)
        found = self.known.get(dataset)
        return None if found is None or found.is_off or found.collate() != collate else found

    def make(self, dataset: Any, collate: Any, *, is_ahead: bool) -> Preloaded | None:
        """Begin to keep the samples of a data set; None if they cannot be kept."""
        if not len(dataset) or not is_stateless(dataset, collate):
            return None
        try:
            left = self.limit_bytes - self.num_bytes
            found = Preloaded(self.torch, dataset, left, collate=collate)
            if is_ahead:
                found.make_all()
        except (NotKeptError, *FAILS):
            return None  # the data set is the script's own, and read as before
        return found

    @property
    def num_bytes(self) -> int:
        """What the samples take that are kept, or will."""
        return sum(one.num_bytes for one in self.known.values() if one and not one.is_off)
