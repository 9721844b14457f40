"""What `source.json` says of the user's files: texts of lines, and what looks wrong in them.

In: a path. Out: a `SourceSeen`. docs/reference/run-folder.md has the file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from steptime.core.codec import check_schema
from steptime.measure.jsonl import Torn


@dataclass(frozen=True, slots=True, kw_only=True)
class LineSeen:
    """A line of a file [absolute path]; `code` says what was found in it, a machine word."""

    code: str
    file: str
    line: int
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSeen:
    """Texts by file and line; suspicions, and where debug switches are turned on."""

    lines: Mapping[tuple[str, int], str] = field(default_factory=dict)
    suspicions: tuple[LineSeen, ...] = ()
    switches: tuple[LineSeen, ...] = ()


def read_source(path: Path, torn: Torn) -> SourceSeen | None:
    """The file's content; None if there is none, or it is no such file, which is counted.

    Raises:
        DamagedRunError: it is of another schema.
    """
    try:
        data = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError):
        data = None
    if isinstance(data, dict):
        check_schema(data, where=str(path))
        try:
            return _source(data)
        except (KeyError, TypeError, ValueError):
            pass
    torn.count += 1
    return None


def _source(data: Mapping[str, Any]) -> SourceSeen:
    return SourceSeen(
        lines={(_text(file), _number(line)): _text(text) for file, line, text in data["lines"]},
        suspicions=tuple(_line(*values) for values in data["suspicions"]),
        switches=tuple(_line(*values) for values in data["switches"]),
    )


def _line(code: Any, file: Any, line: Any, text: Any = "") -> LineSeen:
    return LineSeen(code=_text(code), file=_text(file), line=_number(line), text=_text(text))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a text was expected, got {value!r:.60}")
    return value


def _number(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(f"a whole number was expected, got {value!r:.60}")
    return value
