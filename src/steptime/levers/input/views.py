"""Data sets whose samples are views of arrays that they hold, as whole batches.

This is no lever, as it has no `LEVER`. Rows of a table and windows of a series lie at equal
distances: sample i begins at `start + i * step`, so that one indexed copy of a strided view gives
the bits that torch's collate puts together. Nothing is known of a class's code: that its samples
are such views is seen by the addresses of some samples, and of one in each batch.
"""

from __future__ import annotations

import random
import sys
import warnings
from typing import Any

from ..tools.generators import keep_random_states, random_states
from .datasets import attributes_of, content_of, index_of, spread

NUM_COMPARED = 256
"""Samples whose addresses are looked at before the first batch: 2 ms for windows of a series."""

RAISED = (RuntimeError, LookupError, TypeError, ValueError, AttributeError, AssertionError, OSError)


class WholeViews:
    """Takes the place of the data set for the fetcher, and gives batches that are collated already.

    `subsets`, outermost first, say which of the samples of `inner` are meant. Of each part of a
    sample, `tables` has the views of all samples as one strided tensor.

    Raises:
        TypeError: a sample is of something else than views of arrays that the data set holds.
        ValueError: torch takes no such array, or items lie across each other.
    """

    draws = False

    def __init__(self, torch: Any, dataset: Any, subsets: list[Any], inner: Any) -> None:
        self.torch, self.dataset, self.subsets, self.inner = torch, dataset, subsets, inner
        self.attributes, self.num_samples = attributes_of(inner), len(inner)
        held = (root_of(torch, value) for value in vars(inner).values())
        self.roots = dict(filter(None, held))
        first = inner[0]
        self.container = container_of(first)
        self.starts, after = self.places_of(first), self.places_of(inner[1])
        self.steps = [there[0] - here[0] for here, there in zip(self.starts, after, strict=True)]
        self.tables = [self.table_of(*both) for both in zip(self.starts, self.steps, strict=True)]

    def places_of(self, sample: Any) -> list[tuple[Any, ...]]:
        """Return where the parts of a sample lie: item, dtype, shape, strides [items] and root."""
        container = container_of(sample)
        if container != self.container:
            raise TypeError(type(sample))
        parts = sample.values() if type(container) is list else sample if container else [sample]
        return [self.place_of(part) for part in parts]

    def place_of(self, part: Any) -> tuple[Any, ...]:
        """Return where one part lies."""
        found = root_of(self.torch, part)
        root = self.roots.get(found[0]) if found else None
        if found is None or root is None or part.dtype != root.dtype:
            raise TypeError(type(part))
        key = found[0]
        if isinstance(part, self.torch.Tensor):
            return part.storage_offset(), part.dtype, tuple(part.shape), part.stride(), key
        size = part.itemsize
        offset = part.__array_interface__["data"][0] - root.__array_interface__["data"][0]
        if any(distance % size for distance in (offset, *part.strides)):
            raise ValueError(part.strides)
        strides = tuple(stride // size for stride in part.strides)
        return offset // size, part.dtype, part.shape, strides, key

    def table_of(self, place: tuple[Any, ...], step: int) -> Any:
        """Return the views of all samples, of one part, as one tensor without a copy."""
        offset, _, shape, strides, key = place
        root = self.roots[key]
        if not isinstance(root, self.torch.Tensor):
            root = self.torch.from_numpy(root)
        return root.as_strided((self.num_samples, *shape), (step, *strides), offset)

    def lies_as_told(self, row: int) -> bool:
        """Return whether a sample of the data set's own is where the tables have it."""
        moved = zip(self.starts, self.steps, strict=True)
        wanted = [(start[0] + row * step, *start[1:]) for start, step in moved]
        return self.places_of(self.inner[row]) == wanted

    def __getitems__(self, indices: Any) -> Any:
        """Return a batch as torch's collate makes it."""
        rows = indices
        if self.tables and all(type(index) is int for index in rows):
            for subset in self.subsets:
                rows = [int(subset.indices[index]) for index in rows]
            is_inside = rows and min(rows) >= 0 and max(rows) < self.num_samples
            if is_inside and self.is_so(rows[0]):
                index = index_of(self.torch, rows)
                batch = [table.index_select(0, index) for table in self.tables]
                if type(self.container) is list:
                    return dict(zip(self.container, batch, strict=True))
                return batch if self.container else batch[0]
        return self.collate_samples(indices)

    def is_so(self, row: int) -> bool:
        """Return whether the script has left the data set as it was; if not, never again."""
        try:
            if self.attributes == attributes_of(self.inner) and self.lies_as_told(row):
                return True
        except (TypeError, LookupError, ValueError):
            pass
        self.tables = []
        return False

    def collate_samples(self, indices: Any) -> Any:
        """Return the batch as torch makes it."""
        return self.torch.utils.data.default_collate([self.dataset[index] for index in indices])

    def gives_the_same(self) -> bool:
        """Return whether samples lie as told and equal torch's bit for bit, and none draws."""
        before, num = random_states(self.torch), len(self.dataset)
        rows = spread(self.num_samples, NUM_COMPARED)
        if not all(map(self.lies_as_told, [*rows, self.num_samples - 1])):
            return False
        some = [place * num // 4 for place in range(4)]
        ours, theirs = self.__getitems__(some), self.collate_samples(some)
        is_same = bool(content_of(ours) == content_of(theirs))
        return bool(self.tables) and is_same and before == random_states(self.torch)


def container_of(sample: Any) -> Any:
    """Return what holds a sample's parts: a tuple, a list, or of a dictionary its keys."""
    if type(sample) is dict:
        return list(sample)
    return type(sample) if type(sample) in (tuple, list) else None


def root_of(torch: Any, value: Any) -> tuple[tuple[str, int], Any] | None:
    """Return the memory that a plain array or tensor is a view of, with a key; None for others."""
    if type(value) is torch.Tensor:
        is_plain = value.layout is torch.strided and not value.requires_grad
        if not is_plain or value.is_conj() or value.is_neg() or value.device.type != "cpu":
            return None
        return ("tensor", value.untyped_storage().data_ptr()), value
    numpy = sys.modules.get("numpy")
    if numpy is None or type(value) not in (numpy.ndarray, numpy.memmap):
        return None
    while isinstance(value.base, numpy.ndarray):
        value = value.base
    return ("array", value.__array_interface__["data"][0]), value


def may_be_read(torch: Any, inner: Any, *, is_forked_later: bool) -> bool:
    """Return whether a data set holds an array as long as itself, and no generator of its own.

    Processes that are forked later would share a file that the first read opens; a data set that
    opens its file so late holds a None before.
    """
    if hasattr(inner, "__getitems__") or not hasattr(inner, "__dict__") or len(inner) < 2:
        return False
    values = list(vars(inner).values())
    draws = (random.Random, torch.Generator)
    if any(isinstance(one, draws) or "random" in type(one).__module__ for one in values):
        return False  # what it draws here, training would miss
    if is_forked_later and any(one is None for one in values):
        return False
    return any(root_of(torch, one) and one.ndim and len(one) >= len(inner) for one in values)


def find_views(
    torch: Any, dataset: Any, subsets: list[Any], inner: Any, *, is_forked_later: bool = False
) -> WholeViews | None:
    """Return the data set as whole batches; None if its samples are not such views."""
    put_back = keep_random_states(torch)
    try:
        if not may_be_read(torch, inner, is_forked_later=is_forked_later) or not len(dataset):
            return None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns of read-only arrays; this only reads
            whole = WholeViews(torch, dataset, subsets, inner)
            return whole if whole.gives_the_same() else None
    except RAISED:
        return None  # the class is the script's own
    finally:
        put_back()
