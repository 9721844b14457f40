"""Samples on a fast disk, shared by all processes of a machine, and kept for the next training.

Two files in a folder: `entries.bin` has the samples one behind another, `index.bin` a record of 24
bytes for each. Writers take turns by a lock on the index, which the system releases if one is
killed. A record is written after its entry, and has a checksum of the entry and of the sample's
number, so that nobody trusts what is half written or damaged.
"""

from __future__ import annotations

import fcntl
import os
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from steptime.data.tiers.fork_safe import ForkSafeLock

_RECORD = np.dtype([("index", "<u8"), ("offset", "<u8"), ("length", "<u4"), ("crc", "<u4")])
_FLAGS = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
MAX_ENTRY_BYTES = 2**32 - 1


class _OpenFiles(NamedTuple):
    pid: int
    entries: int
    records: int


class DiskTier:
    """A budget of disk for encoded samples; what came first stays.

    It holds 16 bytes of memory for each sample there is.
    """

    def __init__(self, folder: str, num_samples: int, budget_bytes: int) -> None:
        """Open or make the two files.

        Raises:
            OSError: the folder cannot be made or written into.
        """
        self.folder = folder
        self.budget_bytes = budget_bytes
        self.num_damaged = 0
        os.makedirs(folder, mode=0o700, exist_ok=True)
        self._offsets = np.zeros(num_samples, dtype=np.int64)
        self._lengths = np.zeros(num_samples, dtype=np.uint32)
        self._checks = np.zeros(num_samples, dtype=np.uint32)
        self._end = 0
        self._num_records = 0
        self._lock = ForkSafeLock()
        self._open: _OpenFiles | None = None
        self._refresh(self._files())

    @property
    def num_bytes(self) -> int:
        """Bytes of entries and index; at most the budget."""
        return self._end + self._num_records * _RECORD.itemsize

    def refresh(self) -> None:
        """Learn what other processes have kept meanwhile."""
        files = self._files()
        if os.fstat(files.records).st_size // _RECORD.itemsize > self._num_records:
            with self._lock:
                self._refresh(files)

    def has(self, index: int) -> bool:
        """Whether a sample is kept, as far as is known."""
        return bool(self._lengths[index])

    def get(self, index: int) -> bytes | None:
        """Return what was kept of a sample; None where there is nothing, or it is damaged.

        Raises:
            OSError: the disk cannot be read.
        """
        length = int(self._lengths[index])
        if not length:
            return None
        data = os.pread(self._files().entries, length, int(self._offsets[index]))
        if len(data) == length and _check(index, data) == self._checks[index]:
            return data
        self.num_damaged += 1
        return None

    def put(self, samples: Iterable[tuple[int, bytes]]) -> set[int]:
        """Keep samples while there is room, those again that were damaged; return which are kept.

        Raises:
            OSError: the disk is full, or cannot be written.
        """
        kept: set[int] = set()
        with self._alone() as files:
            self._refresh(files)
            for index, data in samples:
                is_kept = self.get(index) is not None  # another process was first
                if is_kept or self._write(files, index, data):
                    kept.add(index)
        return kept

    def _write(self, files: _OpenFiles, index: int, data: bytes) -> bool:
        grown = self.num_bytes + len(data) + _RECORD.itemsize
        if not 0 < len(data) <= MAX_ENTRY_BYTES or grown > self.budget_bytes:
            return False
        _write_all(files.entries, data, self._end)
        record = np.array([(index, self._end, len(data), _check(index, data))], dtype=_RECORD)
        _write_all(files.records, record.tobytes(), self._num_records * _RECORD.itemsize)
        self._learn(record)
        return True

    def _refresh(self, files: _OpenFiles) -> None:
        start = self._num_records * _RECORD.itemsize
        size = os.fstat(files.records).st_size
        while (whole := (size - start) // _RECORD.itemsize) > 0:
            data = os.pread(files.records, min(whole, 1 << 16) * _RECORD.itemsize, start)
            records = np.frombuffer(data[: len(data) - len(data) % _RECORD.itemsize], _RECORD)
            if not len(records):
                return
            self._learn(records, num_bytes=os.fstat(files.entries).st_size)
            start += records.nbytes

    def _learn(self, records: np.ndarray[tuple[int], np.dtype[np.void]], *,
               num_bytes: int | None = None) -> None:  # fmt: skip
        self._num_records += len(records)
        for index, offset, length, check in records.tolist():
            is_damaged = num_bytes is not None and offset + length > num_bytes
            if index >= len(self._lengths) or is_damaged:
                continue
            self._lengths[index] = 0  # who reads meanwhile, without the lock, finds nothing
            self._offsets[index], self._checks[index] = offset, check
            self._lengths[index] = length
            self._end = max(self._end, offset + length)

    @contextmanager
    def _alone(self) -> Iterator[_OpenFiles]:
        """Let no other thread or process write."""
        files = self._files()
        with self._lock:
            fcntl.flock(files.records, fcntl.LOCK_EX)
            try:
                yield files
            finally:
                fcntl.flock(files.records, fcntl.LOCK_UN)

    def _files(self) -> _OpenFiles:
        """Return the open files of this process: a fork would share its parent's lock."""
        if self._open is None or self._open.pid != os.getpid():
            entries, records = (
                os.open(os.path.join(self.folder, name), os.O_CREAT | _FLAGS, 0o600)
                for name in ("entries.bin", "index.bin")
            )
            self._open = _OpenFiles(os.getpid(), entries, records)
        return self._open

    def close(self) -> None:
        """Close the files; what they keep stays for the next training."""
        if self._open is not None and self._open.pid == os.getpid():
            os.close(self._open.entries)
            os.close(self._open.records)
        self._open = None


def _check(index: int, data: bytes) -> int:
    return zlib.crc32(data, zlib.crc32(index.to_bytes(8, "little")))


def _write_all(descriptor: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written
