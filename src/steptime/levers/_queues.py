"""The queue of batches between a loader and its workers; the loader's lever uses this.

This is no lever, as it has no `LEVER`. Like the levers, it imports only the standard library.
"""

from __future__ import annotations

import sys
from typing import Any

from .base import LoaderFacts

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
    """Return whether nobody else reads from the kept workers, or they have delivered all."""
    iterator = loader.__dict__.get("_iterator")
    if iterator is None or iterator._rcvd_idx >= iterator._send_idx:
        return True
    return sys.getrefcount(iterator) <= 3  # the loader's, the name here, the argument
