"""`stalls.jsonl`: the stalls of a run, written by the watch and read back later.

A stall is one line when it is seen, and a second line if the run continues. `measure.values.stall`
defines what a stall holds; `watch.stall_watch` decides when there is one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from steptime.core.codec import from_json, to_json
from steptime.errors import DamagedRunError
from steptime.measure.fold.jsonl import take_head
from steptime.measure.values.desync import Desync
from steptime.measure.values.stall import Stall
from steptime.record import files, kinds
from steptime.record.lines import Line, Torn, kind_of, read_lines


@dataclass(frozen=True, slots=True, kw_only=True)
class _StallHead:
    k: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _SeenStall:
    n: int
    stall: Stall


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedDesync:
    """How ranks whose run failed had lost each other; `pids` are their processes."""

    pids: tuple[int, ...]
    desync: Desync


@dataclass(frozen=True, slots=True, kw_only=True)
class _Over:
    n: int
    duration_s: float


class StallFile:
    """Appends to the file and opens it each time, because the user may delete the folder."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / files.STALLS
        self._num = 0

    def add(self, stall: Stall) -> int:
        """Write a stall and return its number.

        Raises:
            OSError: the file cannot be written.
        """
        self._begin()
        self._num += 1
        self._append({"k": kinds.STALL, "n": self._num - 1, "stall": to_json(stall)})
        return self._num - 1

    def close(self, number: int, *, duration_s: float) -> None:
        """Write that the run continues.

        Raises:
            OSError: the file cannot be written.
        """
        self._append({"k": kinds.STALL_OVER, "n": number, "duration_s": round(duration_s, 3)})

    def add_desync(self, found: EndedDesync) -> None:
        """Write how the ranks of a run that failed had lost each other.

        Raises:
            OSError: the file cannot be written.
        """
        self._begin()
        self._append({"k": kinds.DESYNC, **to_json(found)})

    def _begin(self) -> None:
        if self._num == 0 and not self._path.exists():
            self._append({"k": kinds.HEAD, "schema": files.SCHEMA})

    def _append(self, line: Mapping[str, Any]) -> None:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(descriptor, (json.dumps(line) + "\n").encode())
        finally:
            os.close(descriptor)


def read_stalls(folder: Path, torn: Torn) -> tuple[Stall, ...]:
    """Return the stalls of a run in order, each with its duration if the run continued."""
    path = folder / files.STALLS
    lines = read_lines(path, torn)
    if take_head(_StallHead, lines, path, torn) is None:
        return ()
    found: dict[int, Stall] = {}
    for line in lines:
        try:
            if kind_of(line) == kinds.STALL:
                seen = from_json(_SeenStall, line)
                found[seen.n] = seen.stall
            elif kind_of(line) == kinds.STALL_OVER:
                over = from_json(_Over, line)
                found[over.n] = replace(found[over.n], duration_s=over.duration_s)
        except (DamagedRunError, LookupError):
            torn.count += 1
    return tuple(found[number] for number in sorted(found))


def read_ended_desync(folder: Path) -> EndedDesync | None:
    """Return how the ranks of a run that failed had lost each other, if that was found."""
    for line in read_lines(folder / files.STALLS):
        if kind_of(line) == kinds.DESYNC:
            with suppress(DamagedRunError):
                return from_json(EndedDesync, line)
    return None


def desync_in(line: Line) -> Desync | None:
    """Return how the ranks had lost each other, if a line of the file is a stall that says so."""
    if kind_of(line) != kinds.STALL:
        return None
    with suppress(DamagedRunError):
        return from_json(_SeenStall, line).stall.desync
    return None
