"""The order of an epoch: a function of seed and epoch, and of nothing else.

In: the number of samples, a seed, an epoch. Out: the numbers of the samples in order. Neither
workers, threads and ranks nor the version of numpy have a part in it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

MAX_SEED = 2**64


class EpochOrder:
    """The order of the samples in each epoch; it holds one epoch's, 8 bytes a sample.

    Source: the counter-based generator Philox4x64-10 (Salmon et al., Parallel random numbers: as
    easy as 1, 2, 3; SC 2011) with the key (seed, epoch). Its raw numbers are the same in all
    versions of numpy (NEP 19), which does not hold for `Generator.permutation`. Sample i has the
    i-th raw number, whose last bits are replaced by i itself, so that no two are equal; the order
    is the order of these numbers.
    """

    def __init__(self, num_samples: int, *, seed: int = 0, shuffle: bool = True) -> None:
        if not 0 <= seed < MAX_SEED:
            raise ValueError(f"`0 <= seed < 2**64` must hold, got {seed=}")
        self.num_samples = num_samples
        self.seed = seed
        self.shuffle = shuffle
        self._epoch: int | None = None
        self._order = np.empty(0, dtype=np.int64)

    def take(self, epoch: int, start: int, stop: int) -> NDArray[np.int64]:
        """Return the samples from place `start` to before `stop` of an epoch: (stop - start,)."""
        if not self.shuffle:
            return np.arange(start, min(stop, self.num_samples), dtype=np.int64)
        if epoch != self._epoch:
            self._order = shuffled(self.num_samples, seed=self.seed, epoch=epoch)
            self._epoch = epoch
        return self._order[start:stop]

    def __getstate__(self) -> dict[str, object]:
        """Leave the order out, for it is made again in less time than it takes to send it."""
        return {**self.__dict__, "_epoch": None, "_order": self._order[:0]}


def shuffled(num_samples: int, *, seed: int, epoch: int) -> NDArray[np.int64]:
    """Return the numbers 0 to num_samples - 1 in the order of this seed and epoch."""
    key = np.array([seed, epoch], dtype=np.uint64)
    drawn: NDArray[np.uint64] = np.random.Philox(key=key).random_raw(num_samples)
    low_bits = np.uint64((1 << max(num_samples - 1, 1).bit_length()) - 1)
    drawn &= ~low_bits
    drawn |= np.arange(num_samples, dtype=np.uint64)
    drawn.sort()
    drawn &= low_bits
    return drawn.view(np.int64)
