"""The batches that the script's loaders gave, and the samples they are made of."""

from __future__ import annotations

import weakref
from typing import Any
from zlib import crc32

from .apart_from_padding import ApartFromPadding
from .checksums import crc_of, sum_of_samples


class Batches:
    """The batches since the last update and the epochs that ended; the watcher writes them.

    Nothing is attached to an iterator: what is known about it is kept in a table beside it.
    """

    def __init__(self, apart: ApartFromPadding) -> None:
        self.apart = apart
        self.passes: weakref.WeakKeyDictionary[Any, Pass] = weakref.WeakKeyDictionary()
        self.datasets: dict[int, int] = {}
        self.begin_update()

    def begin_update(self) -> None:
        """Forget what was written."""
        self.fed: list[list[int]] = []
        self.epochs: list[list[int]] = []

    def take_index(self, iterator: Any, index: Any) -> None:
        """Note the samples that a loader chose for a batch; with workers, that is long before."""
        self._pass_of(iterator).indices.append(index)

    def take_batch(self, iterator: Any, batch: Any) -> None:
        """Note a batch: its CRC, the sum over its samples, the same for their indices, how many.

        The last of the row is its CRC apart from padding, which is not in the sum either.
        """
        one = self._pass_of(iterator)
        index = one.indices.pop(0) if one.indices else None
        cut = self.apart.cut(batch)
        total, size = sum_of_samples(cut)
        row = [one.number, crc_of(batch), total, *sums_of_index(index), size, crc_of(cut)]
        one.totals = [a + b for a, b in zip(one.totals, (1, total, row[4], max(0, size)))]
        self.fed.append(row)

    def end_epoch(self, iterator: Any) -> None:
        """Note that a loader's iterator is at its end."""
        one = self._pass_of(iterator)
        if one.totals[0]:
            self.epochs.append([one.number, *one.totals])
            one.totals = [0, 0, 0, 0]
        one.indices.clear()

    def _pass_of(self, iterator: Any) -> Pass:
        if iterator not in self.passes:
            number = self.datasets.setdefault(id(iterator._dataset), len(self.datasets))
            self.passes[iterator] = Pass(number)
        return self.passes[iterator]


class Pass:
    """What is known about one pass over a data set; `number` is the data set's."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.indices: list[Any] = []
        self.totals = [0, 0, 0, 0]  # batches, sum over samples, sum over indices, samples


def sums_of_index(index: Any) -> tuple[int, int]:
    """Return the CRC-32 of the indices in order, and their sum in any order; -1 without any."""
    numbers = index if isinstance(index, (list, tuple)) else [index]
    if not numbers or numbers[0] is None:
        return -1, -1
    texts = [repr(number).encode() for number in numbers]
    return crc32(b",".join(texts)), sum(map(crc32, texts))
