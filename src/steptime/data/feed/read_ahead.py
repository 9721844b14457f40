"""Reads batches ahead in threads and hands them over in order, never more than a few at once.

Each batch is read in pieces, one a thread. A last thread joins them and does what belongs to
the whole batch, so that neither happens in the training's own time. An error arrives where its
batch would have.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Generic, NamedTuple, TypeVar

from steptime.data.feed.columns import Columns, join
from steptime.errors import DataError

Batch = TypeVar("Batch")


class Steps(NamedTuple):
    """What is done to each batch."""

    read: Callable[[Sequence[int]], Columns]
    """Reads some samples; called in several threads at once."""
    finish: Callable[[Columns], Any]
    """Makes the batch of all its samples; called in one thread, batch by batch."""
    are_near: Callable[[Sequence[int]], bool] = lambda _: False
    """Whether samples are at hand, so that more than one thread costs more than it gives."""


class _Threads(Generic[Batch]):
    def __init__(self, steps: Steps, threads: int) -> None:
        self._steps = steps
        self._num = threads
        self._readers = ThreadPoolExecutor(threads, thread_name_prefix="steptime-read")
        self._joiner = ThreadPoolExecutor(1, thread_name_prefix="steptime-join")
        self._closed = threading.Event()

    def submit(self, indices: Sequence[int]) -> Future[Any]:
        num_pieces = 1 if self._steps.are_near(indices) else self._num
        size = max(1, -(-len(indices) // num_pieces))
        pieces = [
            self._readers.submit(self._read, indices[start : start + size])
            for start in range(0, len(indices), size)
        ]
        return self._joiner.submit(self._finish, pieces)

    def _read(self, indices: Sequence[int]) -> Columns:
        # When Python ends it waits for these threads, so what is still queued then is not begun.
        if self._closed.is_set() or not threading.main_thread().is_alive():
            raise DataError("reading was ended before this batch was read")
        return self._steps.read(indices)

    def _finish(self, pieces: list[Future[Columns]]) -> Any:
        return self._steps.finish(join([piece.result() for piece in pieces]))

    def close(self) -> None:
        self._closed.set()
        self._readers.shutdown(wait=False, cancel_futures=True)
        self._joiner.shutdown(wait=False, cancel_futures=True)


def read_ahead(
    batches: Iterable[tuple[Batch, Sequence[int]]], steps: Steps, *, threads: int, depth: int
) -> Iterator[tuple[Batch, Any]]:
    """Yield each batch's first part, and what its samples became, in order.

    Args:
        batches: what names a batch, and the numbers of its samples.
        steps: what is done to them.
        threads: pieces that are read at once; 0 reads in the caller's thread, when asked.
        depth: batches that are read or ready while the caller works on another, above 0.
    """
    if threads == 0:
        for name, indices in batches:
            yield name, steps.finish(steps.read(indices))
        return
    pool: _Threads[Batch] = _Threads(steps, threads)
    waiting: deque[tuple[Batch, Future[Any]]] = deque()
    try:
        for name, indices in batches:
            waiting.append((name, pool.submit(indices)))
            if len(waiting) > depth:
                first, future = waiting.popleft()
                yield first, future.result()
        while waiting:
            first, future = waiting.popleft()
            yield first, future.result()
    finally:
        pool.close()
