"""Decodes the record of a process's collectives, as `record.call_ring` lays it out.

In: the bytes of one process. Out: `RankCalls`, the oldest call first.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from steptime.measure.values.desync import CollectiveCall
from steptime.record.live.call_ring import (
    CALL,
    CALLS_AT,
    FILE,
    GROUP,
    HEAD,
    MAGIC,
    NUM_CALLS,
    OPERATIONS,
    RETURNED,
    SIZE,
    TEXTS_AT,
    TYPE,
)

SENT = ("send", "recv")
"""Calls between two ranks: the others of the group make none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankGroup:
    """A process group: its name, and its ranks in order."""

    name: str
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCall:
    """One call; `serial` is its number in the process, `number` that in its group, both from 1.

    `is_open` says that the process had not come back from it; `waits_later` that it only started
    it, to wait for it elsewhere.
    """

    serial: int
    number: int
    operation: str
    group: RankGroup
    elements: int | None = None
    dtype: str | None = None
    where: str | None = None
    is_open: bool = False
    waits_later: bool = False

    @property
    def is_sent(self) -> bool:
        """Whether it is between two ranks."""
        return self.operation in SENT

    def told(self, world_size: int) -> CollectiveCall:
        """Return the call as a value of a report."""
        is_whole = len(self.group.ranks) == world_size
        return CollectiveCall(
            operation=self.operation,
            number=self.number,
            elements=self.elements,
            dtype=self.dtype,
            group=None if is_whole else self.group.ranks,
            where=self.where,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RankCalls:
    """The newest calls of a rank, the oldest first."""

    rank: int
    world_size: int
    calls: tuple[RecordedCall, ...] = ()
    pid: int = 0

    @property
    def open_call(self) -> RecordedCall | None:
        """The call that the rank is in."""
        return self.calls[-1] if self.calls and self.calls[-1].is_open else None

    def last_in(self, group: RankGroup) -> RecordedCall | None:
        """Return its newest call in a group."""
        own = (one for one in reversed(self.calls) if one.group == group and not one.is_sent)
        return next(own, None)

    def in_group(self, group: RankGroup) -> Mapping[int, RecordedCall]:
        """Return its calls in a group by their numbers."""
        return {c.number: c for c in self.calls if c.group == group and not c.is_sent}


def decode_calls(data: bytes, *, pid: int, cwd: str | None) -> RankCalls | None:
    """Return the calls in a process's record; None for anything else.

    Args:
        data: the bytes of the file.
        pid: id of the process.
        cwd: the folder of the command, below which files are named relative to it.
    """
    if len(data) != SIZE:
        return None
    magic, rank, world_size = HEAD.unpack_from(data)
    if magic != MAGIC or not 0 <= rank < world_size:
        return None
    tables = _decode_tables(data[TEXTS_AT:CALLS_AT], cwd)
    rows = [CALL.unpack_from(data, CALLS_AT + n * CALL.size) for n in range(NUM_CALLS)]
    found = [_decode_call(row, tables) for row in sorted(rows) if row[0]]
    calls = tuple(one for one in found if one is not None)
    return RankCalls(rank=rank, world_size=world_size, calls=calls, pid=pid)


def _decode_tables(data: bytes, cwd: str | None) -> Mapping[tuple[str, int], Any]:
    """Return files, groups and types by table and place; damaged lines are left out."""
    found: dict[tuple[str, int], Any] = {}
    for line in data.rstrip(b"\0").splitlines():
        with suppress(ValueError, TypeError, KeyError, UnicodeError):
            table, index, *values = json.loads(line)
            if table == FILE:
                found[FILE, index] = short_name(str(values[0]), cwd)
            elif table == GROUP:
                ranks = tuple(sorted(int(rank) for rank in values[1]))
                found[GROUP, index] = RankGroup(name=str(values[0]), ranks=ranks)
            elif table == TYPE:
                found[TYPE, index] = str(values[0])
    return found


def short_name(file: str, cwd: str | None) -> str:
    """Return a file's name, relative to the command's folder if it lies below that."""
    path = PurePath(file)
    return str(path.relative_to(cwd)) if cwd and path.is_relative_to(cwd) else file


def _decode_call(
    row: tuple[int, ...], tables: Mapping[tuple[str, int], Any]
) -> RecordedCall | None:
    serial, number, line, file, elements, group, dtype, operation, state, waits_later = row
    known, name = tables.get((GROUP, group)), tables.get((FILE, file))
    if known is None or not 0 < operation < len(OPERATIONS):
        return None
    return RecordedCall(
        serial=serial,
        number=number,
        operation=OPERATIONS[operation],
        group=known,
        elements=None if elements < 0 else elements,
        dtype=tables.get((TYPE, dtype)),
        where=None if name is None or not line else f"{name}:{line}",
        is_open=state != RETURNED,
        waits_later=bool(waits_later),
    )
