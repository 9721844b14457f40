"""Python processes of the command that the guest did not get into.

In: the command's processes at each sample, and what guests wrote about themselves. Out: processes
that were Python in three samples and wrote nothing, once each. A fork writes nothing by design
(loader workers, the children of a fork server); it is recognized because it has its parent's memory
layout. Helpers that are started (resource tracker, fork server, spawned workers) do write.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from steptime.record import files
from steptime.record.hidden_words import hide_words
from steptime.record.lines import LineReader

_NUM_SAMPLES = 3  # the first one and two more: Python on a network disk starts slowly
_MAX_ARGUMENTS = 20  # as many as a `start` line has
_FULL_BYTES = 1 << 20  # processes.jsonl then takes no more lines, so silence proves nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Unwatched:
    """A Python process without the guest; `name` is its interpreter's."""

    pid: int
    name: str


class UnwatchedFinder:
    """Samples the same run repeatedly; on Linux only, elsewhere it finds nothing."""

    def __init__(self, run_folder: Path, *, proc: Path = Path("/proc")) -> None:
        self._run_folder = run_folder
        self._lines = LineReader(run_folder / files.PROCESSES)
        self._proc = proc
        self._watched: set[int] = set()
        self._commands: set[tuple[str, ...]] = set()
        self._layouts: set[int] = set()
        self._num_samples: dict[int, int] = {}
        self._settled: set[int] = set()

    def find(self, layouts: Mapping[int, int]) -> list[Unwatched]:
        """Return those that are new in this sample.

        Args:
            layouts: for each process of the command, by id, where its stack begins; 0 if unknown.
        """
        self._read_new_lines()
        self._layouts |= {layouts[pid] for pid in layouts.keys() & self._watched} - {0}
        self._settled &= layouts.keys()  # ids are used again
        self._num_samples = {p: n for p, n in self._num_samples.items() if p in layouts}
        if self._lines.num_bytes >= _FULL_BYTES:
            return []
        found = []
        for pid in sorted(layouts.keys() - self._watched - self._settled):
            name = self._python_name(pid)
            self._num_samples[pid] = self._num_samples.get(pid, 0) + 1 if name else 0
            if name and self._num_samples[pid] >= _NUM_SAMPLES:
                self._settled.add(pid)
                if layouts[pid] not in self._layouts and self._is_alone(pid):
                    found.append(Unwatched(pid=pid, name=name))
        return found

    def _read_new_lines(self) -> None:
        with suppress(OSError):
            for line in self._lines.read():
                with suppress(ValueError, LookupError, TypeError):
                    self._watched.add(int(line["pid"]))
                    self._commands.add(tuple(map(str, line["argv"])))

    def _python_name(self, pid: int) -> str | None:
        """Return the name of a Python interpreter; None for other, ended or foreign processes."""
        try:
            name = os.path.basename(os.readlink(self._proc / str(pid) / "exe"))
        except OSError:
            return None
        name = name.removesuffix(" (deleted)")
        return name if name.startswith("python") else None

    def _is_alone(self, pid: int) -> bool:
        """Return whether nothing else explains its silence."""
        with suppress(OSError):
            words = self._read(pid, "cmdline").split(b"\0")[:-1]
            command = tuple(os.fsdecode(word) for word in words[:_MAX_ARGUMENTS])
            if hide_words(command) in self._commands:
                return False  # a fork of a process that is gone by now
            prefix = b"STEPTIME_RUN="
            runs = [v for v in self._read(pid, "environ").split(b"\0") if v.startswith(prefix)]
            if runs and runs[0] != prefix + os.fsencode(self._run_folder):
                return False  # it belongs to a run inside this one
            # Inside a namespace of process ids, the guest knows another id.
            return not self._inner_ids(pid) & self._watched
        return False

    def _inner_ids(self, pid: int) -> set[int]:
        for line in self._read(pid, "status").splitlines():
            if line.startswith(b"NSpid:"):
                return {int(word) for word in line.split()[1:]}
        return set()

    def _read(self, pid: int, name: str) -> bytes:
        return (self._proc / str(pid) / name).read_bytes()
