"""Lines that hold many numbers, as the guest writes them: text is what costs there.

In: lists of whole numbers. Out: lines. All others are objects that `json.dumps` takes as they are.
"""

from __future__ import annotations

from typing import Any

from .kinds import BLOCK, DEVICE_TIMES, MARKERS


def compact(values: Any) -> str:
    """Return nested lists of integers as JSON: `repr` in C, many rows at a time, is cheapest."""
    return repr(values).replace(" ", "")


def rows_line(kind: str, rows: list[list[int]]) -> str:
    """Rows of one kind."""
    return f'{{"k":"{kind}","rows":{compact(rows)}}}\n'


def markers_line(number: int, markers: list[int]) -> str:
    """The raw markers of an update."""
    return f'{{"k":"{MARKERS}","n":{number},"e":{compact(markers)}}}\n'


def device_line(number: int, times_ns: list[int]) -> str:
    """The device times of an update by bucket."""
    return f'{{"k":"{DEVICE_TIMES}","n":{number},"d":{compact(times_ns)}}}\n'


def block_line(row: list[int], wall_us: list[int], cpu_us: list[int]) -> str:
    """A block of rounds, and the times of each of them."""
    sums = f'"row":{compact(row)},"rw":{compact(wall_us)},"rc":{compact(cpu_us)}'
    return f'{{"k":"{BLOCK}",{sums}}}\n'
