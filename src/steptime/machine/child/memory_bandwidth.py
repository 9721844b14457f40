"""The bandwidth of memory and caches, by the size of the working set.

`copy` is b = a, `triad` is a = b + s * c. Each array counts once, read or written, as in STREAM
(McCalpin 1995): what the processor reads only to overwrite it is not counted. Sets of at least four
times the last cache count as memory, smaller ones as cache.

The place of an array's pages matters too: on which node, behind which channel. Two allocations in
one process differed by up to 45 % in a virtual machine, and the first ones were slowest, so as many
are tried as time allows.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from .repeat import Candidate, Clock, RepeatedWork, Search, Setting, describe, nothing

NUM_ARRAYS = {"copy": 2, "triad": 3}
SMALLEST_BYTES = 256 << 10
"""For all arrays together; below this, the call takes longer than the copy."""

MAX_PLACES = 24
ALONE = 2
"""A single set may be this many times as large as one of several."""

MEMORY_FACTOR = 4  # STREAM's rule: arrays of four times the caches
SCALAR = 3.0


def sizes(*, cache_bytes: int, limit_bytes: int) -> tuple[list[int], list[int]]:
    """Return the sizes of sets [bytes] that may fit into a cache, and of those that do not.

    Args:
        cache_bytes: of all caches of the last level.
        limit_bytes: of the largest set of several; a set alone may be larger.
    """
    bound = MEMORY_FACTOR * cache_bytes
    small, size = [], SMALLEST_BYTES
    while size < min(bound, limit_bytes + 1):
        small.append(size)
        size *= 4 if size < (16 << 20) else 2
    large = [size for size in (bound, 2 * bound) if size <= limit_bytes]
    if not large and bound <= ALONE * limit_bytes:  # a virtual machine names its host's caches
        large = [bound]
    return small, large


class Sweep:
    """The candidates of one kind on one device."""

    def __init__(self, torch: Any, device: str, kind: str, num_threads: int) -> None:
        self.torch = torch
        self.device = device
        self.kind = kind
        self.num_threads = num_threads
        self.is_cpu = device == "cpu"
        self._arrays: dict[tuple[int, int], list[Any]] = {}

    def in_cache(self, sizes: list[int]) -> Iterator[Candidate]:
        """Yield each size; all of them are the first part of one set of arrays."""
        for size in sizes:
            yield from self._candidates(size, (sizes[-1], 0))

    def in_memory(self, sizes: list[int]) -> Iterator[Candidate]:
        """Yield each size in one place."""
        for size in sizes:
            yield from self._candidates(size, (size, 0))

    def places(self, best: Setting, limit_bytes: int) -> Iterator[Candidate]:
        """Yield more places for the best so far, as long as all together stay below the limit."""
        size = best["payload_bytes"]
        for number in range(1, min(MAX_PLACES, limit_bytes // size)):
            yield self._candidate(size, best["num_threads"], (size, number))

    def _candidates(self, size: int, place: tuple[int, int]) -> Iterator[Candidate]:
        """Yield all threads and one thread: small sets gain nothing from more."""
        counts = [self.num_threads, 1] if self.num_threads > 1 else [1]
        for threads in counts if self.is_cpu else [None]:
            yield self._candidate(size, threads, place)

    def _candidate(self, size: int, threads: int | None, place: tuple[int, int]) -> Candidate:
        setting = {"payload_bytes": size, "num_threads": threads}
        amount = float(self._elements(size) * 4 * NUM_ARRAYS[self.kind])
        return Candidate(setting, amount, partial(self._work, size, threads, place))

    def _elements(self, size: int) -> int:
        return size // (4 * NUM_ARRAYS[self.kind])

    def arrays(self, place: tuple[int, int]) -> list[Any]:
        """Return the arrays of a place: the size of the set, and its number among that size.

        They are kept, so no place is used twice.
        """
        if place not in self._arrays:
            num = self._elements(place[0])
            self._arrays[place] = [
                self.torch.full((num,), float(i), device=self.device)
                for i in range(NUM_ARRAYS[self.kind])
            ]
        return self._arrays[place]

    def _work(self, size: int, threads: int | None, place: tuple[int, int]) -> RepeatedWork:
        torch, num = self.torch, self._elements(size)
        a, b, *rest = (array[:num] for array in self.arrays(place))
        finish = nothing if self.is_cpu else (lambda: torch.cuda.synchronize(self.device))
        if self.kind == "copy":
            return RepeatedWork(lambda: b.copy_(a), finish, lambda: self._prepare(threads))
        return RepeatedWork(
            lambda: torch.add(b, rest[0], alpha=SCALAR, out=a),
            finish,
            lambda: self._prepare(threads),
        )

    def _prepare(self, threads: int | None) -> None:
        if threads is not None and self.torch.get_num_threads() != threads:
            self.torch.set_num_threads(threads)


def measure(
    torch: Any,
    device: str,
    kind: str,
    clock: Clock,
    *,
    num_threads: int,
    cache_bytes: int,
    limit_bytes: int,
) -> Iterator[dict[str, Any]]:
    """Yield the ceilings of cache and memory for `copy` or `triad`."""
    small, large = sizes(cache_bytes=cache_bytes, limit_bytes=limit_bytes)
    sweep = Sweep(torch, device, kind, num_threads)
    end_s, errors = clock.until_s, (RuntimeError,)
    begin_s = clock.read()
    if device == "cpu":  # on a GPU, a call takes longer than its cache's content
        clock.until_s = begin_s + (end_s - begin_s) / 2
        search = Search(clock, errors=errors)
        search.try_all(sweep.in_cache(small))
        yield describe(kind, device, "bytes_per_s", search, variant="cache")
    clock.until_s = end_s
    search = Search(clock, errors=errors)
    search.try_all(sweep.in_memory(large))
    if best := search.best():
        search.try_all(sweep.places(best.candidate.setting, limit_bytes))
    line = describe(kind, device, "bytes_per_s", search, variant="memory")
    yield line if large else {**line, "missing": "not_enough_memory"}
