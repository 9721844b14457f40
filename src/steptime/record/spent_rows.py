"""Names the numbers in the rows of lines on time spent and on work done again."""

from __future__ import annotations

from typing import NamedTuple

from .lines import Line
from .rows import _NONE, _rows, _typed


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
