"""The queue of batches between a loader and its workers; the loader's lever uses this.

This is no lever, as it has no `LEVER`. Like the levers, it imports only the standard library.
"""

from __future__ import annotations

import sys
from typing import Any

from ..base import Facts, LoaderFacts, Settings

PREFETCH = 2
"""Torch's default."""

CLOSE = 0.95
"""Of the fastest: of settings that are nearly equal, the smallest one is taken."""

DEEP_PREFETCH = 8
"""Batches that wait for each worker, for samples that take unequal time; torch's default is 2."""

MAX_PREFETCH_BYTES = 32 << 20
"""Of shared memory, whose default in a container is 64 MiB."""


def fits_deep(loaders: list[LoaderFacts], num_workers: int) -> bool:
    """Return whether a deep queue is known to fit into shared memory: too much ends the trial."""
    if not loaders:
        return False
    most = num_workers * DEEP_PREFETCH
    for loader in loaders:
        if loader.sample_bytes is None or loader.batch_size is None:
            return False
        if not 0 < most * loader.sample_bytes * loader.batch_size <= MAX_PREFETCH_BYTES:
            return False
    return True


def is_reusable(loader: Any) -> bool:
    """Return whether nothing else reads from the kept workers, or they have delivered all."""
    iterator = loader.__dict__.get("_iterator")
    if iterator is None or iterator._rcvd_idx >= iterator._send_idx:
        return True
    return sys.getrefcount(iterator) <= 3  # the loader's, the name here, the argument


def measured(facts: Facts, loaders: list[LoaderFacts]) -> tuple[Settings, ...]:
    """Return the smallest setting that was nearly as fast as the fastest, if it is another one."""
    rates = facts.worker_rates or ()
    best = max(one.batches_per_s for one in rates)
    close = [one for one in rates if one.batches_per_s >= CLOSE * best]
    chosen = min(close, key=lambda one: (one.num_workers, one.prefetch_factor or 0))
    row: dict[str, int | bool] = {"num_workers": chosen.num_workers}
    if chosen.num_workers:
        row |= {"persistent_workers": True, "prefetch_factor": chosen.prefetch_factor or PREFETCH}
    if facts.device != "cpu":
        row["pin_memory"] = True
    is_own = bool(loaders) and all(
        getattr(loader, name) == row[name] for loader in loaders for name in row
    )
    return () if is_own else (row,)
