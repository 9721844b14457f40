"""Samples in the memory of this process: what came first stays, until the budget is used."""

from __future__ import annotations

import mmap

import numpy as np

from steptime.data.tiers.fork_safe import ForkSafeLock

_INDEX_BYTES = 16  # of each sample there is: where it lies, and how long it is


class RamTier:
    """A budget of memory for encoded samples.

    Nothing is ever put out to make room: each epoch needs each sample once, so what was put out is
    needed again as surely as what took its place. A cache of what was used last (LRU) that is
    smaller than the data has put out most of it when the next epoch comes by.
    """

    def __init__(self, num_samples: int, budget_bytes: int) -> None:
        """Reserve the budget, of which the index takes 16 bytes for each sample there is.

        The memory is taken as it is filled. After a fork it is shared until it is written.
        """
        self.budget_bytes = budget_bytes
        room = budget_bytes - _INDEX_BYTES * num_samples
        self._room = max(0, room - room % mmap.PAGESIZE)
        self._offsets = np.zeros(num_samples if self._room else 0, dtype=np.int64)
        self._lengths = np.zeros(num_samples if self._room else 0, dtype=np.int64)
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self._memory = mmap.mmap(-1, self._room, flags=flags) if self._room else None
        self._end = 0
        self._lock = ForkSafeLock()

    @property
    def num_bytes(self) -> int:
        """Memory in use: samples and index [bytes]; at most the budget."""
        return self._end + self._offsets.nbytes + self._lengths.nbytes

    def has(self, index: int) -> bool:
        """Whether a sample is kept."""
        return self._memory is not None and bool(self._lengths[index])

    def get(self, index: int) -> bytes | None:
        """Return what was kept of a sample."""
        if self._memory is None or not (length := int(self._lengths[index])):
            return None
        start = int(self._offsets[index])
        return self._memory[start : start + length]

    def put(self, index: int, data: bytes) -> bool:
        """Keep a sample if there is room, and return whether it is kept."""
        if self._memory is None:
            return False
        with self._lock:
            if self._lengths[index]:
                return True
            if not data or self._end + len(data) > self._room:
                return False
            self._memory[self._end : self._end + len(data)] = data
            self._offsets[index] = self._end
            self._lengths[index] = len(data)  # last: readers take no lock
            self._end += len(data)
        return True
