"""The rows on loops over elements in `source.json`: what is written, and what is read back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopMark:
    """A loop over elements in the user's code, and where its time was measured.

    Attributes:
        code: the pattern, a word of `python_loops`.
        file, line, end_line: the loop.
        text: its first line.
        what: the part of a step that it is in: a phase of the record.
        site: file, first and last line of the site that was timed; None where it is the whole
            part, as the fetch of samples.
        num_others: further loops over elements in the same lines.
        diff: an edit of the file as a unified diff; None where none is certain.
        keeps: what the edit keeps, a word of `loop_edits`.
        live: a diff of those edits that keep the same numbers and can be made while the script
            runs, because they are inside functions that each step calls anew.
    """

    code: str
    file: str
    line: int
    end_line: int
    text: str
    what: str
    site: tuple[str, int, int] | None = None
    num_others: int = 0
    diff: str | None = None
    keeps: str | None = None
    live: str | None = None


def write_loop_row(mark: LoopMark) -> dict[str, Any]:
    """Return a mark as it is written."""
    site = None if mark.site is None else list(mark.site)
    return {
        "code": mark.code,
        "at": [mark.file, mark.line, mark.end_line],
        "text": mark.text,
        "what": mark.what,
        "site": site,
        "num_others": mark.num_others,
        "edit": None if mark.diff is None else [mark.diff, mark.keeps],
        "live": mark.live,
    }


def read_loop_rows(found: object) -> tuple[LoopMark, ...]:
    """Return the rows of this shape; others are left out."""
    rows = found if isinstance(found, list) else []
    marks = [_read(row) for row in rows if isinstance(row, dict)]
    return tuple(mark for mark in marks if mark is not None)


def _read(row: dict[str, Any]) -> LoopMark | None:
    at, site, edit = (_typed(row.get("at")), _typed(row.get("site")), row.get("edit"))
    words = [row.get(name) for name in ("code", "text", "what")]
    num_others = row.get("num_others")
    if at is None or not all(isinstance(one, str) for one in words):
        return None
    if type(num_others) is not int or not 0 <= num_others < 1 << 31:
        return None
    is_edit = isinstance(edit, list) and len(edit) == 2 and all(isinstance(e, str) for e in edit)
    return LoopMark(
        code=row["code"],
        file=at[0],
        line=at[1],
        end_line=at[2],
        text=row["text"],
        what=row["what"],
        site=site,
        num_others=num_others,
        diff=edit[0] if is_edit and edit is not None else None,
        keeps=edit[1] if is_edit and edit is not None else None,
        live=row["live"] if isinstance(row.get("live"), str) else None,
    )


def _typed(place: object) -> tuple[str, int, int] | None:
    """Return a file with two lines; None for anything else."""
    if not isinstance(place, list) or [type(one) for one in place] != [str, int, int]:
        return None
    if not all(0 < number < 1 << 31 for number in place[1:]):
        return None
    return place[0], place[1], place[2]
