"""What was appended to a file of lines since the last look.

In: a path. Out: the whole new lines as objects. Unlike `measure.jsonl` it never reads a byte
twice, so that following a trial costs the machine nothing that would show in its times.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Row = dict[str, Any]


class Follower:
    """Follows one file; a line that is not whole yet waits for its end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._rest = b""

    def read(self) -> list[Row]:
        """The new lines that hold an object with a `k`; none if there is no file."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                new = file.read()
        except FileNotFoundError:
            return []
        self._offset += len(new)
        *lines, self._rest = (self._rest + new).split(b"\n")
        return [row for row in map(_parse, lines) if row is not None]


def _parse(line: bytes) -> Row | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) and isinstance(row.get("k"), str) else None
