"""The loaders of a training whose batches become larger.

This is no lever, as it has no `LEVER`. Like the levers, it imports only the standard library.
"""

from __future__ import annotations

import weakref
from typing import Any


class Enlarger:
    """Makes the batches of loaders larger; `changed` holds their samplers and their own sizes."""

    def __init__(self, torch: Any, times: int, count: Any) -> None:
        self.torch = torch
        self.times = times
        self.count = count
        self.changed: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def enlarge(self, loader: Any) -> None:
        """Change a loader whose batches torch makes, once, if an epoch has that many samples.

        A loader that is made of another's batch sampler shares its change.
        """
        batches: Any = getattr(loader, "batch_sampler", None)
        if type(batches) is not self.torch.utils.data.BatchSampler:
            return
        if batches not in self.changed:
            size = int(batches.batch_size)
            try:
                if len(batches.sampler) < self.times * size:
                    return
            except TypeError:  # an iterable data set has no length
                pass
            self.changed[batches] = size
            batches.batch_size = self.times * size
            self.count("changed")
        if loader.batch_size is not None:
            vars(loader)["batch_size"] = batches.batch_size  # torch refuses to set it later

    def put_back(self) -> None:
        """Give all batches their own size again."""
        for batches, size in self.changed.items():
            batches.batch_size = size
