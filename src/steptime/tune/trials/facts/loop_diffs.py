"""Chooses the edits of loops for the lever `vectorized_loops` from what the source showed.

In: the loops of a trial's `source.json`. Out: unified diffs. Sites inside a function overlap, so
several of them may show the same loop.
"""

from __future__ import annotations

from collections.abc import Iterable

from steptime.levers.tools.line_edits import read_edits
from steptime.measure.source.loop_marks import LoopMark


def live_diffs(loops: Iterable[LoopMark]) -> tuple[str, ...]:
    """Return the diffs that can be made while the script runs, without those that add no line."""
    diffs = dict.fromkeys(one.live for one in loops if one.live is not None)
    found: list[str] = []
    seen: set[tuple[str, int]] = set()
    for diff in sorted(diffs, key=len, reverse=True):
        lines = _lines_of(diff)
        if lines - seen:
            seen |= lines
            found.append(diff)
    return tuple(found)


def _lines_of(diff: str) -> set[tuple[str, int]]:
    """Return the lines that a diff replaces, with their file."""
    return {
        (edit.name, one.line + number)
        for edit in read_edits(diff)
        for one in edit.changes
        for number in range(len(one.before))
    }
