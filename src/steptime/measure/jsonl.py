"""Lines of JSON from a file that a guest appended to until it was killed.

In: a path. Out: the objects in it, a line that was cut short skipped and counted; a file of
another schema is refused. What the objects hold is left to the readers beside this module.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from steptime.core.codec import check_schema, from_json
from steptime.errors import DamagedRunError

T = TypeVar("T")
Row = Mapping[str, Any]


class Torn:
    """Counts the lines that could not be read."""

    def __init__(self) -> None:
        self.count = 0


def read_rows(path: Path, torn: Torn) -> Iterator[Row]:
    """The lines that hold an object with a `k`; none if there is no file."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        # A guest whose write failed begins the next one on a fresh line: blank lines are fine.
        for line in filter(bytes.strip, file):
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                row = None
            if isinstance(row, dict) and isinstance(row.get("k"), str):
                yield row
            else:
                torn.count += 1


def take_head(cls: type[T], rows: Iterator[Row], path: Path, torn: Torn) -> T | None:
    """The first line; None, with all others counted, if it is not the head."""
    for row in rows:
        if row["k"] == "head":
            check_schema(row, where=str(path))
            try:
                return from_json(cls, row)
            except DamagedRunError:
                pass
        torn.count += 1 + sum(1 for _ in rows)
    return None


def take_all(cls: type[T], rows: list[Row], kinds: tuple[str, ...], torn: Torn) -> tuple[T, ...]:
    """The lines of these kinds; others are left out, those of another shape counted."""
    found = []
    for row in rows:
        if row["k"] in kinds:
            try:
                found.append(from_json(cls, row))
            except DamagedRunError:
                torn.count += 1
    return tuple(found)
