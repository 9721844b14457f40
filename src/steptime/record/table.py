"""The updates of one process as columns of numbers, many times smaller than an object each.

In: lines of updates. Out: a column by place; one that is zero throughout takes no memory. Which
rows make a step is left to `measure`.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from operator import lt

from .lines import Line
from .places import NUMBER, THREAD
from .rows import Layout, MisshapenError

Column = Sequence[int]


class UpdateTable:
    """All rows so far; `close` when there are no more, then ask for columns."""

    __slots__ = ("_columns", "_flat", "_num", "layout")

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._flat = array("q")
        self._columns: dict[int, array[int]] = {}
        self._num = 0

    def __len__(self) -> int:
        return self._num

    def add(self, line: Line) -> None:
        """Take the rows of a line of updates, all of them or none.

        Raises:
            MisshapenError: one of them has another shape.
        """
        flat = self.layout.flat_updates(line)
        try:
            self._flat.fromlist(flat)
        except OverflowError as error:
            raise MisshapenError(f"a number of more than 64 bits: {error}") from error
        self._num += len(flat) // self.layout.size

    def close(self) -> None:
        """Turn rows into columns."""
        size = self.layout.size
        columns = ((place, self._flat[place::size]) for place in range(size))
        self._columns = {place: column for place, column in columns if any(column)}
        self._flat = array("q")

    def column(self, place: int) -> Column:
        """The numbers at one place of all rows."""
        return self._columns.get(place) or zeros(self._num)

    def has(self, place: int) -> bool:
        """Whether any number at this place is not zero."""
        return place in self._columns

    def of_thread(self, thread: int) -> UpdateTable:
        """The rows of one thread in order of their numbers, of several with one number the last.

        A flush that failed half way may have written a line twice.
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
    """A column of zeros."""
    return array("q", bytes(8 * size))
