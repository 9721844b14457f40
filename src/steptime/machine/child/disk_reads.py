"""Reads from the file system of the data: in sequence, and at random places.

It uses one temporary file in the store, whose name is removed before the first byte is written, so
nothing stays behind however this process ends. The file is read past the page cache where the file
system allows that (`direct`); otherwise from the page cache, which has just taken it in (`warm`).
No cache is dropped. A cache of the disk itself, or of the host of a virtual machine, may still
help.
"""

from __future__ import annotations

import mmap
import os
import random
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from .repeat import Candidate, Clock, RepeatedWork, Search, describe

BLOCK = 4096
"""The size of a random read and the alignment of direct reads: a page, and the largest sector."""

CHUNK_BYTES = 1 << 20  # of a sequential read
MAX_BYTES, MIN_BYTES = 1 << 30, 16 << 20
MAX_WARMED_BYTES = 128 << 20  # read once beforehand, perhaps over a network
FREE_SHARE = 0.05  # of what is free on the file system
WRITE_SHARE = 0.3  # of the time
READS = 64  # random reads for each call and thread
SEQUENTIAL_THREADS, RANDOM_THREADS = (1, 4), (1, 16)
MAX_SEEN = 5000  # files of the data folder that are examined
_ERRORS = (OSError,)


@dataclass(frozen=True)
class Readable:
    """A file to read: an open descriptor, its bytes, and whether reads bypass the cache."""

    descriptor: int
    size: int
    is_direct: bool

    @property
    def variant(self) -> str:
        """The word for how it is read."""
        return "direct" if self.is_direct else "warm"


def measure(request: dict[str, Any], clock: Clock) -> Iterator[dict[str, Any]]:
    """Yield the ceilings of sequential and random reads.

    Args:
        request: `store`, the folder for the file, or None; `data`, the data folder; `in_memory`,
            whether its file system is in memory, where even reads past the cache come from memory.
        clock: ends with the time for both.
    """
    found = _open(request.get("store"), request["data"], clock)
    kinds = (("disk_sequential", "bytes_per_s"), ("disk_random", "reads_per_s"))
    if isinstance(found, str):
        for kind, unit in kinds:
            yield {"k": "ceiling", "kind": kind, "device": "disk", "unit": unit, "missing": found}
        return
    if request.get("in_memory"):
        found = replace(found, is_direct=False)
    end_s = clock.until_s
    try:
        clock.until_s = clock.read() + clock.left_s() / 2
        yield _sequential(found, clock)
        clock.until_s = end_s
        yield _random(found, clock)
    finally:
        os.close(found.descriptor)


def _open(store: str | None, data: str, clock: Clock) -> Readable | str:
    """Return what to read, or why there is nothing, a machine word."""
    try:
        device = os.stat(data).st_dev
        if store is not None and os.stat(store).st_dev == device:
            return _make(store, clock)
    except OSError:
        return "not_writable"
    # The data is elsewhere, where we write nothing: one of its own files is read.
    path = _largest(data, device, clock)
    if path is None:
        return "no_store" if store is None else "data_elsewhere"
    try:
        return _reopen(path, os.path.getsize(path))
    except OSError:
        return "not_readable"


def _make(store: str, clock: Clock) -> Readable | str:
    """Return a new file without a name."""
    status = os.statvfs(store)
    size = min(MAX_BYTES, int(FREE_SHARE * status.f_bavail * status.f_frsize))
    if size < MIN_BYTES:
        return "no_space"
    descriptor, path = tempfile.mkstemp(prefix=".steptime-disk-", dir=store)
    try:
        direct = _open_direct(path)
    finally:
        os.unlink(path)
    try:
        written = _write(descriptor, size, clock)
    except OSError:
        _close(descriptor, direct)
        return "not_writable"
    if direct is not None and _can_read(direct):
        _close(descriptor)
        return Readable(direct, written, is_direct=True)
    _close(direct)
    return Readable(descriptor, written, is_direct=False)


def _close(*descriptors: int | None) -> None:
    for one in descriptors:
        if one is not None:
            os.close(one)


def _write(descriptor: int, size: int, clock: Clock) -> int:
    """Write bytes that neither compress nor repeat to the disk; return how many."""
    until_s = clock.read() + WRITE_SHARE * clock.left_s()
    chunk = bytearray(os.urandom(4 * CHUNK_BYTES))
    written = 0
    while written < size and (written < MIN_BYTES or clock.read() < until_s):
        for place in range(0, len(chunk), BLOCK):  # otherwise a file system may store one copy
            chunk[place : place + 8] = (written + place).to_bytes(8, "little")
        written += os.write(descriptor, chunk)
    os.fsync(descriptor)
    return written // CHUNK_BYTES * CHUNK_BYTES


def _largest(data: str, device: int, clock: Clock) -> str | None:
    """Return the largest file of the data found in the time; None if none is large enough."""
    best, size, seen = None, MIN_BYTES - 1, 0
    until_s = clock.read() + 0.1 * clock.left_s()
    for folder, _, names in os.walk(data):
        for name in names:
            seen += 1
            path = os.path.join(folder, name)
            with suppress(OSError):
                status = os.lstat(path)
                is_file = (status.st_mode & 0o170000) == 0o100000
                if is_file and status.st_dev == device and status.st_size > size:
                    best, size = path, status.st_size
        if seen > MAX_SEEN or clock.read() > until_s:
            break
    return best


def _reopen(path: str, size: int) -> Readable:
    """Open a file of the user's for reading; warm it if it must come from the page cache."""
    size = min(MAX_BYTES, size) // CHUNK_BYTES * CHUNK_BYTES
    direct = _open_direct(path)
    if direct is not None and _can_read(direct):
        return Readable(direct, size, is_direct=True)
    _close(direct)
    descriptor = os.open(path, os.O_RDONLY)
    size = min(size, MAX_WARMED_BYTES)
    for place in range(0, size, CHUNK_BYTES):
        os.pread(descriptor, CHUNK_BYTES, place)
    return Readable(descriptor, size, is_direct=False)


def _open_direct(path: str) -> int | None:
    """Return a descriptor that bypasses the page cache; None where that is not possible."""
    flag = getattr(os, "O_DIRECT", None)
    if flag is None:
        return None
    try:
        return os.open(path, os.O_RDONLY | flag)
    except OSError:
        return None


def _can_read(descriptor: int) -> bool:
    """Return whether reads work: some file systems refuse only the read, not the open."""
    try:
        with mmap.mmap(-1, BLOCK) as page:
            return os.preadv(descriptor, [page], 0) >= 0
    except OSError:
        return False


def _sequential(file: Readable, clock: Clock) -> dict[str, Any]:
    """Measure chunks one after the other, each thread in a part of its own."""

    def candidates() -> Iterator[Candidate]:
        for threads in SEQUENTIAL_THREADS:
            pool = _Pool(file.descriptor, threads, CHUNK_BYTES)
            each = file.size // threads // CHUNK_BYTES
            # A call is long compared with its start, and short compared with the available time.
            count = max(1, min(each, 16))
            places = _Rounds(each, count, threads)
            setting = {"payload_bytes": CHUNK_BYTES, "num_threads": threads}
            amount = float(threads * count * CHUNK_BYTES)
            yield Candidate(setting, amount, partial(_work, pool, places.next))

    search = Search(clock, errors=_ERRORS)
    search.try_all(candidates())
    return describe("disk_sequential", "disk", "bytes_per_s", search, variant=file.variant)


def _random(file: Readable, clock: Clock) -> dict[str, Any]:
    """Measure blocks at random places."""
    chance = random.Random(0)
    num_blocks = file.size // BLOCK

    def places(threads: int) -> list[list[int]]:
        return [
            [chance.randrange(num_blocks) * BLOCK for _ in range(READS)] for _ in range(threads)
        ]

    def candidates() -> Iterator[Candidate]:
        for threads in RANDOM_THREADS:
            pool = _Pool(file.descriptor, threads, BLOCK)
            setting = {"payload_bytes": BLOCK, "num_threads": threads}
            amount = float(threads * READS)
            yield Candidate(setting, amount, partial(_work, pool, partial(places, threads)))

    search = Search(clock, errors=_ERRORS)
    search.try_all(candidates())
    return describe("disk_random", "disk", "reads_per_s", search, variant=file.variant)


def _work(pool: _Pool, places: Callable[[], list[list[int]]]) -> RepeatedWork:
    return RepeatedWork(lambda: pool.read(places()))


class _Rounds:
    """The places of one call after the other, repeatedly through the whole file."""

    def __init__(self, each: int, count: int, threads: int) -> None:
        self._each, self._count, self._threads = each, count, threads
        self._at = 0

    def next(self) -> list[list[int]]:
        """Return, for each thread, the places of its next chunks."""
        chunks = [(self._at + i) % self._each for i in range(self._count)]
        self._at = (self._at + self._count) % self._each
        return [
            [(thread * self._each + chunk) * CHUNK_BYTES for chunk in chunks]
            for thread in range(self._threads)
        ]


class _Pool:
    """Threads that read; direct reads need memory that begins at a page."""

    def __init__(self, descriptor: int, threads: int, size: int) -> None:
        self._descriptor = descriptor
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None
        self._buffers = [mmap.mmap(-1, size) for _ in range(threads)]

    def read(self, places: list[list[int]]) -> None:
        """Read at all places of each thread, and wait for all threads."""
        if self._pool is None:
            self._read(self._buffers[0], places[0])
            return
        list(self._pool.map(self._read, self._buffers, places))

    def _read(self, buffer: mmap.mmap, places: list[int]) -> None:
        for place in places:
            if os.preadv(self._descriptor, [buffer], place) <= 0:
                raise OSError("the file ended early")
