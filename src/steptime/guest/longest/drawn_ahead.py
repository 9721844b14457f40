"""Reads which samples a loader's iterator draws in this epoch, without drawing any.

Torch's samplers shuffle once, as an epoch begins, and then go through a list. A copy of what goes
through it says the whole list; the iterator stands where it stood, and no random number is drawn.
A sampler that draws as it goes says nothing before.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from types import GeneratorType
from typing import Any, NamedTuple

from ..order.loader_nature import length_of

LIST_ITERATOR: type = type(iter([]))
MAX_DEPTH = 4

KNOWN, ITERABLE, OWN_SAMPLER, AS_IT_GOES = "known", "iterable", "own_sampler", "as_it_goes"
"""Whether the order of an epoch is known, or why it is not."""


class Drawn(NamedTuple):
    """The indices of an epoch in their order, and where each batch begins."""

    indices: Sequence[int]
    starts: Sequence[int]

    def batch(self, number: int) -> Sequence[int]:
        """Return the indices of a batch of the epoch, numbered from 0."""
        ends = (*self.starts[number + 1 : number + 2], len(self.indices))
        return self.indices[self.starts[number] : ends[0]]


def read_order(torch: Any, iterator: Any) -> tuple[str, Drawn | None]:
    """Return whether the order of a loader's iterator is known, and the order."""
    data = torch.utils.data
    if isinstance(iterator._dataset, data.IterableDataset):
        return ITERABLE, None
    sampler, drawing = iterator._index_sampler, iterator._sampler_iter
    if type(sampler) is not data.BatchSampler:
        given = list_behind(drawing)
        return (OWN_SAMPLER, None) if given is None else in_batches(given)
    inner = sampler.sampler
    if type(inner) is data.SequentialSampler:
        return KNOWN, cut(range(len(inner)), sampler)
    if type(inner) is data.RandomSampler and inner.replacement:
        return AS_IT_GOES, None
    found = drawn_by(data, inner, drawing)
    if found is None or not all(type(one) is int for one in found):
        return OWN_SAMPLER, None
    if len(found) != length_of(inner):
        return AS_IT_GOES, None
    return KNOWN, cut(found, sampler)


def drawn_by(data: Any, sampler: Any, drawing: Any) -> list[Any] | None:
    """Return all that a sampler draws, given what its batch sampler goes through."""
    iterators = held_by(drawing)
    if type(sampler) is data.SubsetRandomSampler:  # it goes through places in its indices
        iterators = [inner for one in iterators for inner in held_by(one)]
    found = next((one for it in iterators if (one := list_behind(it)) is not None), None)
    if found is None or type(sampler) is not data.SubsetRandomSampler:
        return found
    return [int(sampler.indices[place]) for place in found]


def cut(indices: Sequence[int], sampler: Any) -> Drawn:
    """Return the batches of torch's own batch sampler."""
    size = sampler.batch_size
    num = len(indices) // size if sampler.drop_last else -(-len(indices) // size)
    kept = indices[: num * size] if sampler.drop_last else indices
    return Drawn(kept, range(0, num * size, size))


def in_batches(given: Sequence[Any]) -> tuple[str, Drawn | None]:
    """Return the batches of a list of lists of indices, or of one index each."""
    indices: list[int] = []
    starts = []
    for one in given:
        starts.append(len(indices))
        batch = one if type(one) in (list, tuple) else (one,)
        if not all(type(index) is int for index in batch):
            return OWN_SAMPLER, None
        indices += batch
    return KNOWN, Drawn(indices, starts)


def held_by(iterator: Any) -> list[Any]:
    """Return what a suspended generator holds, the iterators that it goes through among it."""
    if type(iterator) is not GeneratorType or iterator.gi_frame is None:
        return []
    held = gc.get_referents(iterator)
    return [*held, *gc.get_referents(iterator.gi_frame)]  # the frame's own in Python 3.10


def list_behind(iterator: Any) -> list[Any] | None:
    """Return the list that an iterator goes through, from its beginning; None for any other."""
    for _ in range(MAX_DEPTH):
        if type(iterator) is LIST_ITERATOR:
            parts: Any = iterator.__reduce__()
            given: list[Any] | None = parts[1][0] if len(parts) == 3 else None  # 2 at its end
            return given
        if type(iterator) is not GeneratorType:
            break
        iterator = iterator.gi_yieldfrom
    return None
