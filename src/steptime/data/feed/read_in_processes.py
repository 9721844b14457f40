"""Reads batches in worker processes, for decoders and transforms that hold the interpreter lock."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from steptime.data.feed.read_ahead import Steps

Name = TypeVar("Name")


class _WholeBatches:
    """A dataset of torch whose items are batches: an item's number is all its samples' numbers."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    def __getitem__(self, indices: Sequence[int]) -> Any:
        return self._steps.finish(self._steps.read(indices))


def _as_it_is(batch: Any) -> Any:
    return batch


def read_in_processes(
    batches: Iterable[tuple[Name, Sequence[int]]], steps: Steps, *, processes: int, depth: int
) -> Iterator[tuple[Name, Any]]:
    """Yield each batch's name, and what its samples became, in order.

    Args:
        batches: what names a batch, and the numbers of its samples.
        steps: what is done to them, in a worker.
        processes: workers, above 0; they end with the iteration.
        depth: batches that each worker has read or is reading.
    """
    from torch.utils.data import DataLoader

    named, read = itertools.tee(batches)
    loader = DataLoader(
        _WholeBatches(steps),
        batch_size=None,
        sampler=(indices for _, indices in read),
        num_workers=processes,
        prefetch_factor=depth,
        collate_fn=_as_it_is,
    )
    for (name, _), batch in zip(named, loader, strict=True):
        yield name, batch
