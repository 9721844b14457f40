"""Reads the updates that were only counted and timed, and gives them rows like all others.

In: lines of kind `RESTED`. Out: rows with a time and no phase. Their counts are those of the last
watched update of the same optimizer: nothing else is known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import NamedTuple

from .lines import Line
from .places import NUM_LEADING, RESTED
from .rows import Layout, MisshapenError, _get, _ints, _length

OWN = ("gc_pauses", "gc_ns", "gc_full", "prepare_ns")
"""Counts that belong to one update and say nothing of the next."""


class RestedRow(NamedTuple):
    """Updates that were only counted and timed; the optimizers take turns in this order."""

    first_number: int
    thread: int
    start_ns: int
    end_ns: int
    cpu_ns: int
    gc_pauses: int
    gc_ns: int
    gc_full: int
    optimizers: tuple[int, ...]
    times_us: tuple[int, ...]

    @property
    def num_updates(self) -> int:
        """Return the number of updates."""
        return len(self.times_us)


def rested(line: Line) -> RestedRow:
    """Return the updates of a line that were only counted and timed."""
    optimizers, times_us = _get(line, "o"), _get(line, "w")
    numbers = _ints(_get(line, "row"), len(RestedRow._fields) - 2)
    lists = (_ints(values, _length(values)) for values in (optimizers, times_us))
    row = RestedRow._make((*numbers, *lists))
    if not row.optimizers or not row.times_us:
        raise MisshapenError("updates and their optimizers are wanted")
    return row


def rows_of(rested: RestedRow, like: Mapping[int, Sequence[int]], layout: Layout) -> list[int]:
    """Return a row for each update, one after another.

    Args:
        rested: the updates; all their time is `other`, and the collections are in the first one.
        like: the last watched row before them, by its optimizer.
        layout: of the rows.
    """
    flat: list[int] = []
    none = [0] * layout.size
    cpu_ns, begin_ns = rested.cpu_ns // rested.num_updates, rested.start_ns
    number = rested.first_number
    for optimizer, time_us in zip(cycle(rested.optimizers), rested.times_us):
        end_ns = begin_ns + 1000 * time_us
        row = none[:]
        row[layout.counts_at : layout.cpu_at] = like.get(optimizer, none)[
            layout.counts_at : layout.cpu_at
        ]
        for name in OWN:
            row[layout.counts_at + layout.counts.index(name)] = 0
        row[:NUM_LEADING] = number, rested.thread, optimizer, begin_ns, end_ns, 0, RESTED
        row[layout.wall_at] = end_ns - begin_ns
        row[layout.cpu_at] = cpu_ns
        flat += row
        number, begin_ns = number + 1, end_ns
    for name, value in zip(OWN[:3], (rested.gc_pauses, rested.gc_ns, rested.gc_full), strict=True):
        flat[layout.counts_at + layout.counts.index(name)] = value
    return flat
