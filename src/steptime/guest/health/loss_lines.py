"""The rows of losses as they are written: one by one at first, then two of each block.

Bad numbers are never left out where they begin and end. No torch here.
"""

from __future__ import annotations

from json import dumps
from typing import Any

from ...record import kinds
from ...record.places import BY_HAND
from ...record.writing import losses_line
from .scalars import is_finite

ALL_UPDATES = 20_000
"""As many updates are written one by one: as many as have rows of their own."""

BLOCK = 16
"""Of each later block of so many the first row and the one with the largest loss are written."""


Row = tuple[int, int, int, "float | None", "float | None"]
"""An update's number from 1, its optimizer, 1 if a scaler skipped it, loss and norm. Rows of
backward calls, where no optimizer has stepped, have a numbering of their own."""

_SKIPPED, _LOSS = 2, 3


class LossLines:
    """Numbers the updates, and keeps what is to be written.

    `ended` is where the guest adds updates in their order: optimizer, whether it was skipped, sum
    and number of the losses, norm. They are sorted when somebody asks, many at a time.
    """

    def __init__(self) -> None:
        self.ended: list[tuple[int, int | None, float, int, float | None]] = []
        self.num_ended = 0  # rows of both kinds
        self.num_updates = self.num_by_hand = 0
        self.rows: list[Row] = []
        self.block: list[Row] = []
        self.places: list[dict[str, Any]] = []
        self.last_row: Row = (0, 0, 0, None, None)

    @property
    def last(self) -> int:
        """Return the number of the last row: of an update, or else of a backward call."""
        return self.num_updates or self.num_by_hand

    @property
    def next(self) -> int:
        """Return the number that the next row will have."""
        return self.last + 1

    def settle(self) -> None:
        """Number the updates that have ended, and make rows of those with something to tell."""
        if not self.ended:
            return
        ended, self.ended = self.ended, []
        self.num_ended += len(ended)
        for optimizer, skipped, total, num, norm in ended:
            if optimizer == BY_HAND:
                self.num_by_hand = number = self.num_by_hand + 1
            else:
                self.num_updates = number = self.num_updates + 1
            if num or norm is not None or skipped:
                self._add((number, optimizer, skipped or 0, total / num if num else None, norm))

    def skip(self, num: int) -> None:
        """Leave out the numbers of updates whose losses nobody has seen."""
        self.settle()
        self.num_ended += num
        self.num_updates += num

    def add_late(self, number: int, optimizer: int, value: float, *, is_loss: bool) -> None:
        """Add a number that came after the end of its update."""
        self._add((number, optimizer, 0, *((value, None) if is_loss else (None, value))))

    def _add(self, row: Row) -> None:
        if row[0] <= ALL_UPDATES:
            self.rows.append(row)
        else:
            self._add_late(row, is_turn=is_bad(row) != is_bad(self.last_row))
        self.last_row = row

    def _add_late(self, row: Row, *, is_turn: bool) -> None:
        if is_turn or row[_SKIPPED]:
            self._close_block()
            self.rows.append(row)
            return
        self.block.append(row)
        if len(self.block) == BLOCK:
            self._close_block()

    def _close_block(self) -> None:
        if not self.block:
            return
        block, self.block = self.block, []
        largest = max(block, key=_size)
        self.rows.append(block[0])
        if largest is not block[0]:
            self.rows.append(largest)

    def pop(self) -> str:
        """Return the lines since the last call."""
        self.settle()
        rows, self.rows = self.rows, []
        places, self.places = self.places, []
        text = "".join(dumps({"k": kinds.NON_FINITE, **place}) + "\n" for place in places)
        return (losses_line(rows) if rows else "") + text


def is_bad(row: Row) -> bool:
    """Return whether the loss or the norm of an update is not finite."""
    size = (row[3] or 0.0) + (row[4] or 0.0)
    return size - size != 0.0


def _size(row: Row) -> float:
    loss = row[_LOSS]
    return float("-inf") if loss is None else loss if is_finite(loss) else float("inf")
