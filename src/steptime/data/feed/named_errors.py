"""Whatever goes wrong with a sample says which one it is: its shard and its row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TypeVar

from steptime.data.source import SampleSource
from steptime.errors import DataError, SteptimeError

T = TypeVar("T")


def with_place(
    source: SampleSource, indices: Sequence[int], work: Callable[[Sequence[int]], T]
) -> T:
    """Return what `work` makes of these samples.

    Raises:
        DataError: it failed; the message names the sample that it fails on.
    """
    with _NamesSample(source, indices, work):
        return work(indices)


class _NamesSample:
    """Turns an error of somebody else's code into one that names the sample."""

    def __init__(
        self, source: SampleSource, indices: Sequence[int], work: Callable[[Sequence[int]], object]
    ) -> None:
        self.source, self.indices, self.work = source, indices, work

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not isinstance(error, Exception) or isinstance(error, (SteptimeError, MemoryError)):
            return
        if len(self.indices) == 1:
            where = self.source.place_of(int(self.indices[0]))
            raise DataError(f"{where}: {type(error).__name__}: {error}") from error
        for index in self.indices:  # which one is it?
            with_place(self.source, [int(index)], self.work)
        first, last = int(self.indices[0]), int(self.indices[-1])
        raise DataError(
            f"{len(self.indices)} samples, from {self.source.place_of(first)} to "
            f"{self.source.place_of(last)}: {type(error).__name__}: {error}"
        ) from error
