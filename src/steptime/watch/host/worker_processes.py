"""Which of the command's processes are DataLoader workers.

In: the files that the guest in each worker writes. Out: process ids. A file is read as far as it
has grown, and only while there is a process that is not explained yet.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from steptime.record import kinds
from steptime.record.lines import LineReader, kind_of

_NUM_SAMPLES = 10  # a worker writes with its first batch, so a process silent until then is none


@dataclass(frozen=True, slots=True, kw_only=True)
class Workers:
    """The workers that exist now, and the processes that ever had workers."""

    pids: frozenset[int] = frozenset()
    parents: frozenset[int] = frozenset()


class WorkerFinder:
    """Examines the same run repeatedly."""

    def __init__(self, run_folder: Path) -> None:
        self._folder = run_folder
        self._readers: dict[str, LineReader] = {}
        self._workers: set[int] = set()
        self._num_samples: dict[int, int] = {}
        self._parents: set[int] = set()

    def find(self, pids: Collection[int]) -> Workers:
        """Return which of the processes are workers."""
        known = {p: n for p, n in self._num_samples.items() if p in pids}
        self._workers &= set(pids)
        new = [pid for pid in pids if known.get(pid, 0) < _NUM_SAMPLES and pid not in self._workers]
        self._num_samples = known | {pid: known.get(pid, 0) + 1 for pid in new}
        if new:
            self._read(set(pids))
        return Workers(pids=frozenset(self._workers), parents=frozenset(self._parents))

    def _read(self, pids: set[int]) -> None:
        with suppress(OSError):
            for entry in os.scandir(self._folder):
                if entry.name.startswith("worker-"):
                    reader = self._readers.setdefault(
                        entry.path, LineReader(entry.path, without=(kinds.WORKER,))
                    )
                    with suppress(OSError):
                        self._take(reader, pids)

    def _take(self, reader: LineReader, pids: set[int]) -> None:
        for line in reader.read():
            if kind_of(line) == kinds.HEAD:
                with suppress(ValueError, LookupError, TypeError):
                    self._workers |= {int(line["pid"])} & pids
                    self._parents.add(int(line["ppid"]))
