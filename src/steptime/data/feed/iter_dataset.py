"""A loader as an iterable dataset of torch, whose workers share the batches in their order."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import IterableDataset, get_worker_info

from steptime.data.feed.feed_loader import Loader

MAX_WORKERS = 1024


class IterDataset(IterableDataset):  # type: ignore[misc]
    """The batches of a loader for torch's `DataLoader(…, batch_size=None)`.

    The order is the loader's, with any number of workers: worker w of W reads batches w, w + W and
    so on, and `DataLoader` takes turns. Each iteration is the next epoch; that holds
    for workers too, which know the epoch by memory that they share. Iterating is all: to resume
    in the middle, iterate the loader itself (its `processes` decode beside it).
    """

    def __init__(self, loader: Loader) -> None:
        """Hand out a loader's batches, from its epoch and its place on."""
        self.loader = loader
        self._state = loader.state_dict()
        self._num_begun = torch.zeros(MAX_WORKERS, dtype=torch.int64).share_memory_()

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        """Yield this worker's batches of the next epoch."""
        info = get_worker_info()
        worker, num_workers = (0, 1) if info is None else (info.id, info.num_workers)
        num_begun = int(self._num_begun[worker])
        self._num_begun[worker] += 1
        epoch = self._state["epoch"] + num_begun
        start = self._state["position"] if num_begun == 0 else 0
        own = itertools.islice(self.loader.plan(epoch, start), worker, None, num_workers)
        return (batch for _, batch in self.loader.read(own))

    def set_epoch(self, epoch: int) -> None:
        """Let the next iteration be of this epoch."""
        self._state = {**self._state, "epoch": epoch, "position": 0}
        self._num_begun.zero_()
