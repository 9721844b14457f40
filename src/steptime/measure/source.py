"""What `source.json` says of the user's files: texts of lines, and what looks wrong in them.

In: a run folder. Out: a `Source`. docs/reference/run-folder.md has the file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from steptime.core.types import SCHEMA

NAME = "source.json"

Place = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Something in the source: a code of the contract, its place, and the line as it stands."""

    code: str
    file: str
    line: int
    text: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What `source.json` says; `texts` are lines by absolute file and number."""

    texts: Mapping[Place, str] = field(default_factory=dict)
    suspicions: tuple[Mark, ...] = ()
    switches: tuple[Mark, ...] = ()


def read_source(run_folder: Path) -> Source:
    """What `source.json` says; nothing if there is none, or it is damaged or foreign."""
    try:
        document = json.loads((run_folder / NAME).read_bytes())
    except (OSError, ValueError, RecursionError):
        return Source()
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        return Source()
    texts = {(row[0], row[1]): row[2] for row in _rows(document, "lines", (str, int, str))}
    suspicions = _rows(document, "suspicions", (str, str, int, str))
    switches = _rows(document, "switches", (str, str, int))
    return Source(
        texts=texts,
        suspicions=tuple(Mark(code=c, file=f, line=n, text=t) for c, f, n, t in suspicions),
        switches=tuple(Mark(code=c, file=f, line=n) for c, f, n in switches),
    )


def _rows(document: Mapping[str, Any], name: str, kinds: tuple[type, ...]) -> list[Any]:
    """The rows of this shape; others are left out."""
    rows = document.get(name)
    return [
        row
        for row in (rows if isinstance(rows, list) else ())
        if isinstance(row, list) and tuple(map(type, row)) == kinds
    ]
