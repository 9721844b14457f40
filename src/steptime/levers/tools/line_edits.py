"""Reads unified diffs of the user's files, and makes of a file's text the text with the edit.

This is no lever, as it has no `LEVER`. A line `# sha256:...` before the names of a file says what
the text was when the edit was found: what makes it certain may stand anywhere in the file. Each
replaced part keeps its number of lines, so that all other code keeps its line numbers.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_FILE = re.compile(r"\+\+\+ b/(.+)")
_SUM = re.compile(r"# sha256:([0-9a-f]{64})")
_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+\d+(?:,\d+)? @@.*")


@dataclass(frozen=True)
class LineChange:
    """Lines that others replace; `line` is the number of the first, from 1.

    `before` are the lines as the diff has them; those of the context are changes without a change.
    """

    line: int
    before: tuple[str, ...]
    after: tuple[str, ...]


@dataclass(frozen=True)
class FileEdit:
    """All changes of a file; `name` is relative to the folder of the command, or absolute.

    `digest` is the hash of the text for which they were found; None where the diff has none.
    """

    name: str
    digest: str | None
    changes: tuple[LineChange, ...]


def read_edits(diff: str) -> tuple[FileEdit, ...]:
    """Return the edits in joined diffs, one for each file.

    Raises:
        ValueError: a line is none of a diff.
    """
    digests: dict[str, str | None] = {}
    changes: dict[str, list[LineChange]] = {}
    hunk: list[LineChange] | None = None
    name, digest, number = "", None, 0
    for line in diff.split("\n"):
        if found := _SUM.fullmatch(line):
            digest = found[1]
        elif found := _FILE.fullmatch(line):
            name = found[1]
            digests[name], digest, hunk = digest, None, None
            changes.setdefault(name, [])
        elif (found := _HUNK.fullmatch(line)) and name:
            number, hunk = int(found[1]), changes[name]
            hunk.append(LineChange(number, (), ()))
        elif line.startswith((" ", "-", "+")) and hunk and not line.startswith("--- "):
            _add(hunk, line[0], line[1:], number)
            number += line[0] != "+"
        elif line and not line.startswith("--- "):
            raise ValueError(f"the diff of `vectorized_loops` has a line that is none: {line!r}")
    return tuple(
        FileEdit(name, digests[name], tuple(_without_doubles(changes[name]))) for name in changes
    )


def _add(changes: list[LineChange], sign: str, text: str, number: int) -> None:
    """Add a line of a hunk to the last change, or begin another one."""
    last = changes[-1]
    is_context = last.before == last.after
    if sign == " " or (is_context and last.before):
        last = LineChange(number, (), ())
        changes.append(last)
    before = (*last.before, *((text,) if sign != "+" else ()))
    after = (*last.after, *((text,) if sign != "-" else ()))
    changes[-1] = LineChange(last.line, before, after)


def _without_doubles(changes: Iterable[LineChange]) -> list[LineChange]:
    """Return changes in order, each once; of two that overlap, the one with more lines."""
    found: list[LineChange] = []
    taken: set[int] = set()
    for one in sorted(set(changes), key=lambda one: (-len(one.before), one.line)):
        lines = range(one.line, one.line + len(one.before))
        if one.before != one.after and not taken.intersection(lines):
            taken.update(lines)
            found.append(one)
    return sorted(found, key=lambda one: one.line)


def is_for(edit: FileEdit, text: str) -> bool:
    """Return whether a text is the one for which an edit was found."""
    if edit.digest is not None and edit.digest != hashlib.sha256(text.encode()).hexdigest():
        return False
    lines = text.split("\n")
    return all(_there(lines, one) == one.before for one in edit.changes)


def edited(edit: FileEdit, text: str) -> str:
    """Return the text with the edit, in which all other lines keep their numbers.

    A replacement with fewer lines gets empty ones behind it; one with more lines has no place.

    Raises:
        ValueError: the edit does not fit.
    """
    if not is_for(edit, text):
        raise ValueError(f"the edit of {edit.name} by `vectorized_loops` does not fit the file")
    lines = text.split("\n")
    for one in edit.changes:
        missing = len(one.before) - len(one.after)
        if missing < 0:
            raise ValueError(f"the edit of {edit.name}:{one.line} has more lines than it replaces")
        end = one.line - 1 + len(one.before)
        lines[one.line - 1 : end] = [*one.after, *[""] * missing]
    return "\n".join(lines)


def _there(lines: Sequence[str], one: LineChange) -> tuple[str, ...]:
    return tuple(lines[one.line - 1 : one.line - 1 + len(one.before)])
