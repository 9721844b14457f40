"""Turns lines of the record into values; a dataclass describes each kind of line.

In: lines, as `record.lines` reads them. Out: frozen values; it counts lines of another shape, and
refuses a file of another schema. `record.rows` reads rows of numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

from steptime.core.codec import check_schema, from_json
from steptime.errors import DamagedRunError
from steptime.record import kinds
from steptime.record.lines import Line, Torn, kind_of

T = TypeVar("T")


def take_head(cls: type[T], lines: Iterator[Line], path: Path, torn: Torn) -> T | None:
    """Return the first line; if it is not the head, count all others and return None."""
    for line in lines:
        if kind_of(line) == kinds.HEAD:
            check_schema(line, where=str(path))
            try:
                return from_json(cls, line)
            except DamagedRunError:
                pass
        torn.count += 1 + sum(1 for _ in lines)
    return None


def take_all(
    cls: type[T], lines: Iterable[Line], wanted: tuple[str, ...], torn: Torn
) -> tuple[T, ...]:
    """Return the lines of these kinds; others are left out, those of another shape counted."""
    return read_all(partial(from_json, cls), lines, wanted, torn)


def read_all(
    read: Callable[[Line], T], lines: Iterable[Line], wanted: tuple[str, ...], torn: Torn
) -> tuple[T, ...]:
    """Return what is read of the lines of these kinds; it counts as `take_all` does."""
    found = []
    for line in lines:
        if kind_of(line) in wanted:
            try:
                found.append(read(line))
            except (DamagedRunError, ValueError):
                torn.count += 1
    return tuple(found)
