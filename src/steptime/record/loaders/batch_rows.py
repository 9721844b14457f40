"""Names the numbers in the rows of lines on batches, on time spent, and on what comes again."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..lines import Line
from ..rows import _NONE, MisshapenError, _ints, _length, _rows, _typed

SEEN_BY = ("sequence_bounds", "attention_mask", "pixel_mask", "labels", "padding_token")
"""What may say which positions of a batch are used, the surest first."""


class BatchRow(NamedTuple):
    """A batch that was looked at; `guest/padding/read_batch.py` says what the numbers are.

    `number` is how many updates had rows before it, `seen_by` a place in `SEEN_BY`; `num_trained`
    and `token` are -1 where they are not known.
    """

    number: int
    seen_by: int
    num_rows: int
    width: int
    num_seen: int
    num_needed: int
    num_trained: int
    token: int
    lengths: tuple[int, ...]


def batches(line: Line) -> list[BatchRow]:
    """Return the batches that were looked at."""
    return [_batch(values) for values in _rows(line)]


def _batch(values: Any) -> BatchRow:
    size = len(BatchRow._fields)
    if not isinstance(values, list) or len(values) != size:
        raise MisshapenError(f"a batch is wanted, got {values!r:.60}")
    numbers, lengths = _ints(values[:-1], size - 1), _ints(values[-1], _length(values[-1]))
    row = BatchRow._make((*numbers, lengths))
    if not 0 <= row.seen_by < len(SEEN_BY) or min(row[2:6]) < 0 or min(row.lengths, default=0) < 0:
        raise MisshapenError(f"the sizes of a batch are wanted, got {values!r:.60}")
    return row


class SpentRow(NamedTuple):
    """An instruction that sampled stacks were at; columns are None before Python 3.11."""

    what: str
    file: str
    line: int
    column: int | None
    end_line: int | None
    end_column: int | None
    function: str
    callee: str
    num: int
    ns: int
    mean_update: float


class AgainRow(NamedTuple):
    """A `module` or a `data_set` whose rows come again; sizes are of one row [bytes]."""

    what: str
    name: str
    file: str
    line: int
    calls: int
    total_ns: int
    num_rows: int
    num_distinct: int
    row_bytes: int
    result_bytes: int


def spent(line: Line) -> list[SpentRow]:
    """Return the instructions that sampled stacks were at, the longest first."""
    kinds = (str, str, int, *((int, _NONE),) * 3, str, str, int, int, (int, float))
    return [SpentRow(*_typed(values, *kinds)) for values in _rows(line)]


def again(line: Line) -> list[AgainRow]:
    """Return what comes again bit for bit."""
    return [AgainRow(*_typed(values, str, str, str, *(int,) * 7)) for values in _rows(line)]
