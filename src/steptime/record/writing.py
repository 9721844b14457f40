"""Writes the lines that hold many numbers, as the guest does: making text is their cost.

In: lists of whole numbers. Out: lines. `json.dumps` writes all other lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from .kinds import BLOCK, DEVICE_TIMES, LOSSES, MARKERS, RESTED


def compact(values: Any) -> str:
    """Return nested lists of integers as JSON: `repr` of many rows, in C, is the fastest way."""
    return repr(values).replace(" ", "")


def rows_line(kind: str, rows: list[list[int]]) -> str:
    """Return a line with rows of one kind."""
    return f'{{"k":"{kind}","rows":{compact(rows)}}}\n'


def markers_line(number: int, markers: list[int]) -> str:
    """Return a line with the raw markers of an update."""
    return f'{{"k":"{MARKERS}","n":{number},"e":{compact(markers)}}}\n'


def device_line(number: int, times_ns: list[int]) -> str:
    """Return a line with the device times of an update by bucket."""
    return f'{{"k":"{DEVICE_TIMES}","n":{number},"d":{compact(times_ns)}}}\n'


def block_line(
    row: list[int], wall_us: list[int], cpu_us: list[int], disturbed: Sequence[int] = ()
) -> str:
    """Return a line with a block of rounds, the times of each round, and those that do not count.

    `disturbed` are places in the block, from 0; where there are none, the line does not have them.
    """
    sums = f'"row":{compact(row)},"rw":{compact(wall_us)},"rc":{compact(cpu_us)}'
    if disturbed:
        sums += f',"rd":{compact(list(disturbed))}'
    return f'{{"k":"{BLOCK}",{sums}}}\n'


def rested_line(row: list[int], optimizers: Sequence[int], times_us: list[int]) -> str:
    """Return a line with updates that were only counted and timed (`places.RESTED`)."""
    turns = compact(list(optimizers))
    return f'{{"k":"{RESTED}","row":{compact(row)},"o":{turns},"w":{compact(times_us)}}}\n'


MAX_LOSS = 1e99
"""Larger ones, of 64 bits, are written as infinite: no reader of a record takes them."""


def losses_line(rows: Iterable[Sequence[Any]]) -> str:
    """Return a line with the losses of updates: three whole numbers, then a loss and a norm."""
    texts = [f"[{n},{o},{skipped},{_real(a)},{_real(b)}]" for n, o, skipped, a, b in rows]
    return f'{{"k":"{LOSSES}","rows":[{",".join(texts)}]}}\n'


def _real(value: float | None) -> str:
    """Return a number with seven digits; JSON has no word for one that is not finite."""
    if value is None:
        return "null"
    if -MAX_LOSS < value < MAX_LOSS:
        return f"{value:.7g}"
    return '"nan"' if value != value else '"inf"' if value > 0 else '"-inf"'
