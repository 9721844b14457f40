"""What the loader's levers share: a data set's attributes, and a cache that checks the data set.

This is no lever, as it has no `LEVER`. Like the levers, it imports only the standard library.
"""

from __future__ import annotations

import ctypes
import pickle
import random
import sys
from array import array
from collections.abc import Callable, Mapping
from numbers import Integral
from typing import Any

from ..base import Facts

MAX_WRAPPERS = 5
"""Data sets around a data set; the search must end for one that contains itself."""

NUM_FIRST = 16
EVERY = 64
"""Of the samples that are asked for again, the first 16 are compared, then one in 64: 1.6 %."""

PLAIN = (bool, int, float, complex, str, bytes, type(None))


def copy_of(sample: Any) -> tuple[Any, int]:
    """Return a copy and its bytes; raise a TypeError where a copy may differ."""
    kind = type(sample)
    if kind in PLAIN:
        return sample, sys.getsizeof(sample)
    if kind in (tuple, list):
        parts = [copy_of(part) for part in sample]
        return kind(part for part, _ in parts), 64 + sum(size for _, size in parts)
    if kind is dict:
        values, size = copy_of(list(sample.values()))
        return dict(zip(sample, values, strict=True)), 256 + size
    if (kind.__module__, kind.__name__) == ("torch", "Tensor") and not sample.requires_grad:
        return sample.clone(), 256 + sample.nbytes
    if kind.__module__ == "numpy" and hasattr(sample, "dtype") and not sample.dtype.hasobject:
        return sample.copy("K"), 128 + sample.nbytes
    raise TypeError(kind)


def content_of(sample: Any) -> Any:
    """Return what two equal samples have in common: containers, dtypes and bits."""
    kind = type(sample)
    if kind in (tuple, list):
        return kind, [content_of(part) for part in sample]
    if kind is dict:
        return kind, list(sample), [content_of(part) for part in sample.values()]
    if kind in PLAIN:
        return kind, repr(sample)  # here a NaN equals itself, and -0.0 differs from 0.0
    if hasattr(sample, "dtype") and hasattr(sample, "tobytes"):
        return kind, sample.dtype, sample.shape, sample.tobytes()
    whole = sample.detach().cpu().contiguous()
    bits = ctypes.string_at(whole.data_ptr(), whole.nbytes)
    return kind, sample.dtype, sample.shape, sample.stride(), bits


def random_states(torch: Any) -> bytes:
    """Return the states of the generators that everybody shares."""
    numpy = sys.modules.get("numpy")
    known = numpy.random.get_state() if numpy else None
    state = torch.get_rng_state()
    bits = ctypes.string_at(state.data_ptr(), state.nbytes)
    return pickle.dumps((random.getstate(), bits, known))


class Samples:
    """What was read from one data set, until a sample turns out to differ."""

    def __init__(self, torch: Any, dataset: Any) -> None:
        self.torch = torch
        self.attributes = attributes_of(dataset)
        self.kept: dict[Any, Any] = {}
        self.num_bytes = self.num_reads = self.num_hits = 0
        self.is_off = False

    def is_due(self, index: Any) -> bool:
        """Return whether it must be read, because it is not kept or must be compared."""
        if index not in self.kept:
            return True
        self.num_hits += 1
        return self.num_hits <= NUM_FIRST or self.num_hits % EVERY == 0

    def note(self, index: Any, sample: Any, room: int) -> None:
        """Keep what was read, if there is room [bytes], or compare it with what is kept."""
        copy, size = copy_of(sample)
        if index in self.kept:
            self.is_off |= content_of(copy) != content_of(self.kept[index])
        elif size <= room:
            self.kept[index] = copy
            self.num_bytes += size


class Cached:
    """Takes the place of the data set for the fetcher."""

    def __init__(self, dataset: Any, samples: Samples, limit_bytes: int, is_copied: bool) -> None:  # noqa: FBT001
        self.dataset, self.samples = dataset, samples
        self.limit_bytes, self.is_copied = limit_bytes, is_copied

    def __getitems__(self, indices: Any) -> list[Any]:
        """Return samples, copied where the collate would pass them on as they are."""
        samples = self.samples
        if samples.is_off or not all(isinstance(index, Integral) for index in indices):
            return samples_of(self.dataset, indices)
        due = [samples.is_due(index) for index in indices]
        wanted = [index for index, is_due in zip(indices, due, strict=True) if is_due]
        kept = [samples.kept.get(index) for index in indices]
        fresh = iter(self.read_and_note(wanted) if wanted else ())
        if self.is_copied:
            kept = [copy_of(sample)[0] for sample in kept]
        return [next(fresh) if is_due else old for is_due, old in zip(due, kept, strict=True)]

    def read_and_note(self, indices: list[Any]) -> list[Any]:
        """Return the data set's own samples, and watch and keep them."""
        samples = self.samples
        is_watched = samples.num_reads < NUM_FIRST
        before = random_states(samples.torch) if is_watched else b""
        fresh = samples_of(self.dataset, indices)
        samples.num_reads += len(indices)
        samples.is_off = is_watched and random_states(samples.torch) != before
        try:
            for index, sample in zip(indices, fresh, strict=True):
                samples.note(index, sample, self.limit_bytes - samples.num_bytes)
        except TypeError:
            samples.is_off = True
        if samples.is_off:
            samples.kept, samples.num_bytes = {}, 0
        return fresh


def around_fetches(torch: Any, fetch_by: Callable[[Any, Any], Any]) -> Callable[[], None]:
    """Let `fetch_by(fetcher, indices)` make the batches of map-style data sets; return the undo.

    It asks what is set on the class, so that loaders take part that are iterated already. Where it
    returns None, the fetcher makes the batch as before.
    """
    fetcher_class = torch.utils.data._utils.fetch._MapDatasetFetcher
    original = fetcher_class.fetch

    def fetch(self: Any, indices: Any) -> Any:
        batch = fetch_by(self, indices) if self.auto_collation else None
        return original(self, indices) if batch is None else batch

    fetcher_class.fetch = fetch
    return lambda: setattr(fetcher_class, "fetch", original)


def has_own_collate(torch: Any, fetcher: Any) -> bool:
    """Return whether batches are not made by torch's default collate; what times it is no other."""
    collate = fetcher.collate_fn
    return getattr(collate, "__wrapped__", collate) is not torch.utils.data.default_collate


def are_read_here(facts: Facts) -> bool:
    """Return whether the training process itself reads all that it trains on, without workers."""
    return bool(facts.loaders) and not any(one.num_workers for one in facts.loaders or ())


def samples_of(dataset: Any, indices: Any) -> list[Any]:
    """Return a data set's own samples, read as torch's fetcher reads them."""
    read_all = getattr(dataset, "__getitems__", None)
    return list(read_all(indices)) if read_all else [dataset[one] for one in indices]


def index_of(torch: Any, rows: list[int]) -> Any:
    """Return row numbers, one at least, as a tensor: in a fifth of the time of `torch.tensor`."""
    return torch.frombuffer(array("q", rows), dtype=torch.int64)


def can_be_key(dataset: Any) -> bool:
    """Return whether a dictionary can hold it without keeping it alive."""
    return type(dataset).__weakrefoffset__ != 0 and type(dataset).__hash__ is not None


def chain_of(dataset: Any) -> list[Any]:
    """Return the data set, what it wraps, and so on."""
    found = [dataset]
    while len(found) < MAX_WRAPPERS and hasattr(found[-1], "dataset"):
        found.append(found[-1].dataset)
    return found


def innermost(dataset: Any) -> Any:
    """Return the data set that all others wrap."""
    return chain_of(dataset)[-1]


def attributes_of(dataset: Any) -> list[Mapping[str, Any]]:
    """Return the attributes of a data set and of what it wraps, to see whether one was set.

    Simple values are returned as they are; for others, the object's id.
    """
    plain = (bool, int, float, str)
    return [
        {name: v if isinstance(v, plain) else id(v) for name, v in vars(one).items()}
        for one in chain_of(dataset)
        if hasattr(one, "__dict__")
    ]
