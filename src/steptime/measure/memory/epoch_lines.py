"""What the lines `lb` of a rank say of an epoch, as values."""

from __future__ import annotations

from dataclasses import dataclass

from steptime.core.codec import from_json
from steptime.record.lines import Line

Row = tuple[int, ...]
"""A batch as the guest tells it: number, largest sample, rows, its size, the sum of all sizes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnSeen:
    """What a data set holds of the sizes of its rows: the row that is largest, and its size.

    If the order is known, `padded` and `summed` have the batches that are larger than all before.
    """

    name: str
    largest: Row
    padded: tuple[Row, ...] = ()
    summed: tuple[Row, ...] = ()
    last: Row = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochSeen:
    """One line on an epoch.

    `compared` has number, updates, rows and elements of some batches, and for each column their
    rows, largest size and sum.
    """

    n: int
    loader: int
    epoch: int
    dataset: str
    order: str
    handed: int
    num_rows: int | None = None
    num_batches: int | None = None
    begun: int = 1
    compared: tuple[Row, ...] = ()
    columns: tuple[ColumnSeen, ...] = ()


def read_epoch(line: Line) -> EpochSeen:
    """Return what a line says of an epoch.

    Raises:
        ValueError: a row has too few numbers.
    """
    found = from_json(EpochSeen, line)
    rows = [row for one in found.columns for row in (*one.padded, *one.summed, one.last or _WHOLE)]
    if any(len(row) != len(_WHOLE) or min(row) < 0 for row in rows):
        raise ValueError("a batch of an epoch must be five numbers")
    if any(len(one.largest) != 2 for one in found.columns):
        raise ValueError("the largest row must be two numbers")
    if any(len(row) < 4 or min(row) < 0 for row in found.compared):
        raise ValueError("a compared batch must be four numbers and more")
    return found


_WHOLE = (0, 0, 0, 0, 0)
