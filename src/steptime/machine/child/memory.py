"""Bandwidth of memory and caches by the size of what is worked on.

`copy` is b = a, `triad` is a = b + s * c; each array counts once, read or written, as in STREAM
(McCalpin 1995): what the processor reads only to write over it is not counted. Sets of four
times the last cache and more count as memory, smaller ones as cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from .repeat import Candidate, Clock, Search, Work, describe, nothing

NUM_ARRAYS = {"copy": 2, "triad": 3}
SMALLEST_BYTES = 256 << 10
"""Of all arrays; below it the call takes longer than the copy."""

MEMORY_FACTOR = 4  # STREAM's rule: arrays of four times the caches
SCALAR = 3.0


def sizes(*, cache_bytes: int, limit_bytes: int) -> tuple[list[int], list[int]]:
    """Sizes of sets [bytes]: those that a cache may hold, and those that only memory can.

    Args:
        cache_bytes: of all caches of the last level.
        limit_bytes: the largest set that may be taken.
    """
    bound = MEMORY_FACTOR * cache_bytes
    small, size = [], SMALLEST_BYTES
    while size < min(bound, limit_bytes + 1):
        small.append(size)
        size *= 4 if size < (16 << 20) else 2
    large = [size for size in (bound, 2 * bound) if size <= limit_bytes]
    return small, large


class Sweep:
    """Candidates of one kind on one device."""

    def __init__(self, torch: Any, device: str, kind: str, num_threads: int) -> None:
        self.torch = torch
        self.device = device
        self.kind = kind
        self.num_threads = num_threads
        self.is_cpu = device == "cpu"
        self._arrays: list[Any] = []

    def candidates(self, sizes: list[int]) -> Iterator[Candidate]:
        """Each size with all threads and with one: small sets gain nothing by more."""
        counts = [self.num_threads, 1] if self.is_cpu and self.num_threads > 1 else [1]
        for size in sizes:
            for threads in counts:
                setting = {"payload_bytes": size, "num_threads": threads if self.is_cpu else None}
                yield Candidate(
                    setting=setting,
                    amount=float(self._elements(size) * 4 * NUM_ARRAYS[self.kind]),
                    make=partial(self._work, size, threads),
                )

    def _elements(self, size: int) -> int:
        return size // (4 * NUM_ARRAYS[self.kind])

    def _work(self, size: int, threads: int) -> Work:
        torch, num = self.torch, self._elements(size)
        if not self._arrays or len(self._arrays[0]) < num:
            self._arrays = []
            self._arrays = [
                torch.full((num,), float(i), device=self.device)
                for i in range(NUM_ARRAYS[self.kind])
            ]
        a, b, *rest = (array[:num] for array in self._arrays)
        finish = nothing if self.is_cpu else (lambda: torch.cuda.synchronize(self.device))
        if self.kind == "copy":
            return Work(lambda: b.copy_(a), finish, lambda: self._prepare(threads))
        return Work(
            lambda: torch.add(b, rest[0], alpha=SCALAR, out=a),
            finish,
            lambda: self._prepare(threads),
        )

    def _prepare(self, threads: int) -> None:
        if self.is_cpu and self.torch.get_num_threads() != threads:
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
    """The ceilings of cache and memory for `copy` or `triad`."""
    small, large = sizes(cache_bytes=cache_bytes, limit_bytes=limit_bytes)
    sweep = Sweep(torch, device, kind, num_threads)
    end_s, errors = clock.until_s, (RuntimeError,)
    begin_s = clock.read()
    if device == "cpu":  # on a GPU a call takes longer than what its cache holds
        clock.until_s = begin_s + (end_s - begin_s) / 2
        search = Search(clock, errors=errors)
        search.try_all(sweep.candidates(small))
        yield describe(kind, device, "bytes_per_s", search, variant="cache")
    clock.until_s = end_s
    search = Search(clock, errors=errors)
    search.try_all(sweep.candidates(large))
    line = describe(kind, device, "bytes_per_s", search, variant="memory")
    yield line if large else {**line, "missing": "not_enough_memory"}
