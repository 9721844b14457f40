"""Holds the updates of one process as columns, which are far smaller than an object per update.

In: lines of updates. Out: a column for each place; one that is zero throughout takes no memory.
`measure` decides which rows make a step.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from operator import lt

from .lines import Line
from .places import DETAIL, DISTURBED, NUMBER, OPTIMIZER, RESTED, THREAD
from .rested_rows import RestedRow, rows_of
from .rows import Layout, MisshapenError

Column = Sequence[int]


class UpdateTable:
    """All rows so far; call `close` when there are no more, then ask for columns."""

    __slots__ = ("_columns", "_flat", "_num", "layout")

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._flat = array("q")
        self._columns: dict[int, array[int]] = {}
        self._num = 0

    def __len__(self) -> int:
        return self._num

    def add(self, line: Line) -> None:
        """Take the rows of a line of updates, either all of them or none.

        Raises:
            MisshapenError: a row has another shape.
        """
        flat = self.layout.flat_updates(line)
        try:
            self._flat.fromlist(flat)
        except OverflowError as error:
            raise MisshapenError(f"a number of more than 64 bits: {error}") from error
        self._num += len(flat) // self.layout.size

    def add_rested(self, rested: Sequence[RestedRow]) -> None:
        """Take updates that were only counted; each gets a row like a watched one before it."""
        size, flat = self.layout.size, self._flat
        starts = iter(sorted(range(0, len(flat), size), key=lambda at: flat[at + NUMBER]))
        like: dict[int, Sequence[int]] = {}
        at = next(starts, None)
        for one in sorted(rested, key=lambda one: one.first_number):
            while at is not None and flat[at + NUMBER] < one.first_number:
                if flat[at + DETAIL] not in (DISTURBED, RESTED) and flat[at + THREAD] == one.thread:
                    like[flat[at + OPTIMIZER]] = flat[at : at + size]
                at = next(starts, None)
            flat.fromlist(rows_of(one, like, self.layout))
            self._num += one.num_updates

    def close(self) -> None:
        """Turn rows into columns."""
        size = self.layout.size
        columns = ((place, self._flat[place::size]) for place in range(size))
        self._columns = {place: column for place, column in columns if any(column)}
        self._flat = array("q")

    def column(self, place: int) -> Column:
        """Return the numbers at one place of all rows."""
        return self._columns.get(place) or zeros(self._num)

    def has(self, place: int) -> bool:
        """Return whether any number at this place is not zero."""
        return place in self._columns

    def of_thread(self, thread: int) -> UpdateTable:
        """Return one thread's rows by their numbers; of rows with the same number, the last counts.

        A flush that failed halfway may have written a line twice.
        """
        numbers, threads = self.column(NUMBER), self.column(THREAD)
        is_ordered = all(map(lt, numbers, numbers[1:]))
        if is_ordered and all(map(thread.__eq__, threads)):
            return self
        places = {n: i for i, (n, t) in enumerate(zip(numbers, threads)) if t == thread}  # noqa: B905
        order = [places[number] for number in sorted(places)]
        found = UpdateTable(self.layout)
        found._num = len(order)
        for place, column in self._columns.items():
            found._columns[place] = array("q", [column[index] for index in order])
        return found


def zeros(size: int) -> array[int]:
    """Return a column of zeros."""
    return array("q", bytes(8 * size))
