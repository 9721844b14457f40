"""A source whose samples are kept in memory and on a fast disk, each within its budget."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any

from steptime.data.feed.columns import num_rows
from steptime.data.source import Column, SampleSource, Values
from steptime.data.tiers.disk_tier import DiskTier
from steptime.data.tiers.fork_safe import ForkSafeLock
from steptime.data.tiers.ram_tier import RamTier
from steptime.data.tiers.sample_codec import by_column, decode_sample, encode_sample

logger = logging.getLogger(__name__)


class CachedSource:
    """Samples of another source, read from memory or a fast disk where they are kept.

    What is read first is kept, until the budgets are used, and nothing is put out again. A sample
    goes to the disk, and where that is full to the memory; what comes from the disk goes to the
    memory as well where there is room. So both together hold as much as they can.

    Whatever is wrong with the disk (full, unwritable, damaged), samples come from the source.
    `notes` says so, once for each reason, and so does a warning of `logging`.
    """

    def __init__(
        self,
        source: SampleSource,
        *,
        ram_bytes: int = 0,
        disk_bytes: int = 0,
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        """Keep samples of a source.

        Args:
            source: whose samples.
            ram_bytes: budget of memory, of each process [bytes].
            disk_bytes: budget of disk, of all processes together [bytes].
            folder: on a fast disk; the samples of each source lie in a folder of their own in it,
                which may be deleted when no training reads it. None keeps nothing on a disk.

        Raises:
            ValueError: a budget is negative, or there is one of disk and no folder.
        """
        if ram_bytes < 0 or disk_bytes < 0 or (disk_bytes and folder is None):
            raise ValueError(
                "`ram_bytes >= 0` and `disk_bytes >= 0`, with a `folder`, must hold, got "
                f"{ram_bytes=}, {disk_bytes=}, {folder=}"
            )
        self._source = source
        self._names = tuple(column.name for column in source.columns)
        self._folder = None if folder is None else os.fspath(folder)
        self._budgets = (ram_bytes, disk_bytes)
        self.notes: tuple[str, ...] = ()
        self.num_reads: dict[str, int] = {"ram": 0, "disk": 0, "source": 0}
        self._lock = ForkSafeLock()
        self._open_tiers()

    def _open_tiers(self) -> None:
        ram_bytes, disk_bytes = self._budgets
        self._ram = RamTier(len(self._source), ram_bytes)
        self._disk: DiskTier | None = None
        self._is_writing = True
        if self._folder is None or not disk_bytes:
            return
        folder = os.path.join(self._folder, fingerprint(self._source))
        try:
            self._disk = DiskTier(folder, len(self._source), disk_bytes)
        except OSError as error:
            self._note(f"no samples are kept in {self._folder}: {error}")

    @property
    def name(self) -> str:
        """That of the source."""
        return self._source.name

    @property
    def columns(self) -> tuple[Column, ...]:
        """Those of the source."""
        return self._source.columns

    @property
    def num_bytes(self) -> int | None:
        """Bytes of all samples in the source."""
        return self._source.num_bytes

    @property
    def reads_in_flight(self) -> int:
        """What the source is made for."""
        return int(getattr(self._source, "reads_in_flight", 1))

    @property
    def ram_bytes(self) -> int:
        """Memory in use for samples in this process; at most its budget."""
        return self._ram.num_bytes

    @property
    def disk_bytes(self) -> int:
        """Disk in use, by all processes; at most its budget."""
        return self._disk.num_bytes if self._disk is not None else 0

    @property
    def hit_rate(self) -> float | None:
        """The fraction of samples that did not come from the source; None before any was read."""
        num = sum(self.num_reads.values())
        return (num - self.num_reads["source"]) / num if num else None

    def __len__(self) -> int:
        return len(self._source)

    def place_of(self, index: int) -> str:
        """Return where the sample lies in the source."""
        return self._source.place_of(index)

    def close(self) -> None:
        """Close the source and the files; what is on the disk stays."""
        self._source.close()
        if self._disk is not None:
            self._disk.close()

    def read(self, indices: Sequence[int]) -> Mapping[str, Values]:
        """Return the samples, from the nearest place that has them.

        Raises:
            DataError: a sample is nowhere kept, and the source cannot read it.
        """
        numbers = [int(index) for index in indices]
        found = {index: sample for index in numbers if (sample := self._from_ram(index))}
        num_ram = len(found)
        found.update(self._from_disk([index for index in numbers if index not in found]))
        missing = [index for index in dict.fromkeys(numbers) if index not in found]
        with self._lock:
            self.num_reads["ram"] += num_ram
            self.num_reads["disk"] += len(found) - num_ram
            self.num_reads["source"] += len(missing)
        if len(missing) == len(numbers):
            columns = self._source.read(numbers)
            self._keep(numbers, columns)
            return columns
        if missing:
            columns = self._source.read(missing)
            self._keep(missing, columns)
            for place, index in enumerate(missing):
                found[index] = [columns[name][place] for name in self._names]
        return by_column(self._names, [found[index] for index in numbers])

    def _from_ram(self, index: int) -> list[Any] | None:
        data = self._ram.get(index)
        return None if data is None else decode_sample(data)

    def _from_disk(self, indices: Sequence[int]) -> dict[int, list[Any]]:
        disk, found = self._disk, {}
        if disk is None or not indices:
            return {}
        try:
            disk.refresh()
            for index in indices:
                if (data := disk.get(index)) is not None:
                    found[index] = decode_sample(data)
                    self._ram.put(index, data)
        except (OSError, ValueError) as error:
            self._disk = None
            self._note(f"samples are no longer read from {disk.folder}: {error}")
        else:
            if disk.num_damaged:
                self._note(f"damaged samples in {disk.folder} are read from the source again")
        return found

    def _keep(self, indices: Sequence[int], columns: Mapping[str, Values]) -> None:
        if num_rows(columns) != len(indices):
            return
        try:
            encoded = [
                (index, encode_sample([columns[name][place] for name in self._names]))
                for place, index in enumerate(indices)
            ]
        except (TypeError, KeyError, OverflowError) as error:
            self._note(f"samples of this source cannot be kept: {error}")
            return
        kept = self._keep_on_disk(encoded)
        for index, data in encoded:
            if index not in kept:
                self._ram.put(index, data)

    def _keep_on_disk(self, encoded: Sequence[tuple[int, bytes]]) -> set[int]:
        if self._disk is None or not self._is_writing:
            return set()
        try:
            return self._disk.put(encoded)
        except OSError as error:
            self._is_writing = False
            self._note(f"no more samples are kept in {self._disk.folder}: {error}")
            return set()

    def _note(self, text: str) -> None:
        with self._lock:
            if text in self.notes:
                return
            self.notes = (*self.notes, text)
        logger.warning("%s", text)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out memory and open files, which another process has of its own."""
        away = ("_ram", "_disk", "_lock")
        return {name: value for name, value in self.__dict__.items() if name not in away}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = ForkSafeLock()
        self._open_tiers()


def fingerprint(source: SampleSource) -> str:
    """Return a name for a source's samples: that of another source, or version of it, differs.

    A source may have a `fingerprint` of its own, that changes with its files. Without it, the name
    is made of format, columns, number and bytes of samples, and where some of them lie.
    """
    num = len(source)
    places = [
        source.place_of(index) for index in sorted({0, num // 2, num - 1}) if 0 <= index < num
    ]
    facts = [
        source.name,
        [tuple(map(str, column[:4])) for column in source.columns],
        *(num, source.num_bytes, places),
        str(getattr(source, "fingerprint", "")),
    ]
    text = json.dumps(facts, sort_keys=True).encode("utf-8", "backslashreplace")
    return hashlib.sha256(text).hexdigest()[:20]
