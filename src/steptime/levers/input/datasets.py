"""What the loader's levers share: a data set's attributes and samples, and around its fetches.

This is no lever, as it has no `LEVER`. Like the levers, it imports only the standard library.
"""

from __future__ import annotations

import ctypes
import sys
from array import array
from collections.abc import Callable, Mapping
from typing import Any

from ..base import Facts

MAX_WRAPPERS = 5
"""Data sets around a data set; the search must end for one that contains itself."""

NUM_FIRST, EVERY = 16, 64
"""Of the samples that are asked for again, the first 16 are compared, then one in 64: 1.6 %."""

IN_MEMORY = ("list", "tuple", "dict", "TensorDataset")
"""Data sets whose samples take no reading."""

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


def around_fetches(
    torch: Any,
    fetch_by: Callable[[Any, Any], Any],
    make_iterator: Callable[[Any, Callable[[], Any]], Any] | None = None,
) -> Callable[[], None]:
    """Let `fetch_by(fetcher, indices)` make the batches of map-style data sets; return the undo.

    It asks what is set on the class, so that loaders take part that are iterated already. Where it
    returns None, the fetcher makes the batch as before. `make_iterator(loader, original)` makes
    the iterators of all loaders.
    """
    fetcher_class = torch.utils.data._utils.fetch._MapDatasetFetcher
    loader_class = torch.utils.data.DataLoader
    original, make_original = fetcher_class.fetch, loader_class._get_iterator

    def fetch(self: Any, indices: Any) -> Any:
        batch = fetch_by(self, indices) if self.auto_collation else None
        return original(self, indices) if batch is None else batch

    def _get_iterator(self: Any) -> Any:
        return make_iterator(self, lambda: make_original(self)) if make_iterator else None

    def undo() -> None:
        fetcher_class.fetch = original
        if make_iterator is not None:
            loader_class._get_iterator = make_original

    fetcher_class.fetch = fetch
    if make_iterator is not None:
        loader_class._get_iterator = _get_iterator
    return undo


def collate_of(fetcher: Any) -> Any:
    """Return what joins a loader's samples, without what times it."""
    collate = fetcher.collate_fn
    is_ours = str(getattr(collate, "__module__", "")).endswith(".loader_hooks")
    return collate.__wrapped__ if is_ours else collate


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


def spread(num: int, num_wanted: int) -> list[int]:
    """Return the places of some samples, so many at most, spread over all of them."""
    num_wanted = min(num_wanted, num)
    return [place * num // num_wanted for place in range(num_wanted)]


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
