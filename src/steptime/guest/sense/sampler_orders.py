"""Whether a distributed sampler shuffles each epoch in the same way.

The order follows from the sampler's seed and epoch alone, and only `set_epoch` changes the epoch.
Both are read where an epoch of a loader that trains has ended.
"""

from __future__ import annotations

import weakref
from typing import Any

MAX_SAMPLERS = 64


class Order:
    """The epochs of one sampler; `epoch` is None once they differ."""

    __slots__ = ("epoch", "num", "sampler", "seed")

    def __init__(self, sampler: Any) -> None:
        self.sampler = weakref.ref(sampler)
        self.seed, self.epoch = sampler.seed, sampler.epoch
        self.num = 0


class SamplerOrders:
    """The distributed samplers whose epochs ended in this process."""

    def __init__(self, torch: Any, trained: set[int]) -> None:
        data = torch.utils.data
        self.batches, self.kind = data.BatchSampler, data.distributed.DistributedSampler
        self.trained = trained
        self.known: dict[int, Order] = {}

    def end_epoch(self, iterator: Any) -> None:
        """Take the iterator of a loader that has no batch left."""
        sampler = iterator._index_sampler
        if type(sampler) is self.batches:
            sampler = sampler.sampler
        if not isinstance(sampler, self.kind) or id(iterator._dataset) not in self.trained:
            return
        if type(sampler).__iter__ is not self.kind.__iter__ or not sampler.shuffle:
            return
        one = self.known.get(id(sampler))
        if one is None or one.sampler() is not sampler:
            if len(self.known) >= MAX_SAMPLERS:
                return
            one = self.known[id(sampler)] = Order(sampler)
        one.num += 1
        if (one.seed, one.epoch) != (sampler.seed, sampler.epoch):
            one.epoch = None

    def tell(self) -> dict[str, int] | None:
        """Return the epochs of the sampler that has kept its order the longest."""
        kept = [one for one in self.known.values() if one.num > 1 and type(one.epoch) is int]
        most = max(kept, key=lambda one: one.num, default=None)
        return None if most is None else {"num_epochs": most.num, "epoch": most.epoch}
