"""Regroups the batches of torch's random samplers, by the lengths of their rows or at random.

This is no lever, as it has no `LEVER`; quality runs use it too. Like the levers, it imports only
the standard library.
"""

from __future__ import annotations

import random
import weakref
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

from .lengths import LIMIT_S, known_lengths, read_lengths

SEED = 7
"""Of a generator of our own: the script's random numbers stay as they were. All ranks draw the same
places, so that their long batches come at the same time."""


class Grouped:
    """Takes the place of a batch sampler: the same rows, in batches of rows with similar keys."""

    def __init__(
        self, batches: Any, keys: Sequence[int], window: int, chance: random.Random
    ) -> None:
        self.batches, self.keys, self.window, self.chance = batches, keys, window, chance

    def __iter__(self) -> Iterator[list[int]]:
        batches = iter(self.batches)
        while window := list(islice(batches, self.window)):
            yield from regroup(window, self.keys, self.chance)

    def __len__(self) -> int:
        return len(self.batches)


def regroup(window: list[list[int]], keys: Sequence[int], chance: random.Random) -> list[list[int]]:
    """Return all rows sorted by their keys and cut into batches, each of the size at its place.

    So the last batch of an epoch stays the short one.
    """
    rows = sorted((row for batch in window for row in batch), key=keys.__getitem__)
    places = list(range(len(window)))
    chance.shuffle(places)
    found, begin = dict.fromkeys(sorted(places), rows), 0
    for place in places:
        end = begin + len(window[place])
        found[place] = rows[begin:end]
        begin = end
    return list(found.values())


def is_shuffled(torch: Any, loader: Any) -> bool | None:
    """Return whether torch's own sampler draws the order; None if another one chooses batches."""
    data, batches = torch.utils.data, loader.batch_sampler
    if isinstance(loader.dataset, data.IterableDataset) or type(batches) is not data.BatchSampler:
        return None
    sampler = batches.sampler
    if isinstance(sampler, data.DistributedSampler):
        return bool(sampler.shuffle)
    if isinstance(sampler, (data.RandomSampler, data.SubsetRandomSampler)):
        return True
    return False if type(sampler) is data.SequentialSampler else None


class RandomKeys(Sequence[int]):
    """A number for each row that has nothing to do with it, the same each time."""

    def __init__(self, seed: int, num: int) -> None:
        self.seed, self.num = seed, num

    def __getitem__(self, row: Any) -> Any:
        return random.Random(f"{self.seed}:{row}").getrandbits(64)

    def __len__(self) -> int:
        return self.num


def group_rows(torch: Any, window: int) -> Callable[[], None]:
    """Put rows of similar length into the same batches; return what undoes it."""

    def find(loader: Any) -> Sequence[int] | None:
        found = known_lengths(torch, loader.dataset)
        return found[1] if found else read_lengths(torch, loader.dataset, limit_s=LIMIT_S)

    return sort_rows(torch, window, find, seed=SEED)


def reorder_rows(torch: Any, window: int, *, seed: int) -> Callable[[], None]:
    """Put rows into other batches at random, as a run to compare with; return what undoes it."""

    def find(loader: Any) -> Sequence[int]:
        return RandomKeys(seed, len(loader.dataset))

    return sort_rows(torch, window, find, seed=seed)


def sort_rows(
    torch: Any, window: int, find: Callable[[Any], Sequence[int] | None], *, seed: int
) -> Callable[[], None]:
    """Sort the rows of each shuffled loader that is iterated with gradients on, by its keys."""
    iterator_class = torch.utils.data.dataloader._BaseDataLoaderIter
    before = iterator_class.__init__
    known: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()

    def make(self: Any, loader: Any) -> None:
        before(self, loader)
        if not (torch.is_grad_enabled() and is_shuffled(torch, loader)):
            return
        if loader not in known:
            known[loader] = find(loader), random.Random(seed)
        keys, chance = known[loader]
        if keys is not None:
            self._index_sampler = Grouped(self._index_sampler, keys, window, chance)
            self._sampler_iter = iter(self._index_sampler)

    iterator_class.__init__ = make
    return lambda: setattr(iterator_class, "__init__", before)
