"""Where in the user's code a moment lies: frames are walked, and loops are read in their code.

A frame is read and released at once; only numbers, its file's name and its code object are kept,
until the next marker of a window (`site_windows.py`). Nothing of the user's is called.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from opcode import EXTENDED_ARG, hasjabs, opname
from types import CodeType, FrameType
from typing import NamedTuple

from .file_owners import LIBRARYS, USERS, FileOwners

MAX_FRAMES = 200
"""Deeper recursion is not followed: a walk must stay short."""

SLACK = 8
"""A jump may seem to lead this many bytes further: some Pythons keep caches behind it."""


class Spot(NamedTuple):
    """Where one function was at a moment; `frame` is an id, and no frame is kept.

    It is direct where the call that it was in was torch's, and no function of a library's or of the
    user's goes on with it.
    """

    frame: int
    code: CodeType
    offset: int
    line: int
    file: str
    is_direct: bool = False


Stack = tuple[Spot, ...]
"""The functions of the user's that were running, outermost first."""

Place = tuple[str, int, int]
"""A file, the first line and the last; a first line above the last one means around a loop."""


class Frames:
    """Walks frames, and finds the lines between two moments."""

    def __init__(self, places: FileOwners) -> None:
        self.places = places
        self.loops: dict[tuple[str, int, int, int], tuple[int, int] | None] = {}
        self.known: dict[tuple[str, int], Place] = {}

    def stack(self, frame: FrameType | None) -> Stack:
        """Return the user's running functions; a library's where none of the user's runs."""
        users: list[Spot] = []
        others: list[Spot] = []
        for _ in range(MAX_FRAMES):
            if frame is None:
                break
            code = frame.f_code
            owner = self.places.owner(code.co_filename)
            if owner == USERS or (owner == LIBRARYS and not users):
                line = frame.f_lineno or code.co_firstlineno
                file = code.co_filename
                file = file if file.startswith("<") else os.path.abspath(file)
                is_direct = not (users or others)
                spot = Spot(id(frame), code, frame.f_lasti, line, file, is_direct)
                (users if owner == USERS else others).append(spot)
            frame = frame.f_back
        return tuple(reversed(users or others))

    def place(self, frame: FrameType | None) -> Place | None:
        """Return the line of the user's innermost function; a library's where none of theirs runs.

        It is `innermost` of the stack, but no walk goes on beyond what it finds.
        """
        found = None
        for _ in range(MAX_FRAMES):
            if frame is None:
                break
            owner = self.places.owner(frame.f_code.co_filename)
            if owner == USERS or (owner == LIBRARYS and found is None):
                found = frame
            if owner == USERS:
                break
            frame = frame.f_back
        if found is None:
            return None
        key = (found.f_code.co_filename, found.f_lineno or found.f_code.co_firstlineno)
        known = self.known.get(key)
        if known is None:
            file, line = key
            file = file if file.startswith("<") else os.path.abspath(file)
            known = self.known[key] = (file, line, line)
        return known

    def between(self, before: Stack, after: Stack) -> Place | None:
        """Return the lines from one moment to the next, in the innermost function of both."""
        found: Place | None = None
        for a, b in zip(before, after):
            if a.frame != b.frame or a.code is not b.code:
                break
            if a.offset != b.offset:
                lines = self._lines(a, b)
                if lines is not None:
                    found = (a.file, *lines)
                break  # it continued, so whatever it had called has returned
            found = (a.file, a.line, b.line)
        return found

    def _lines(self, a: Spot, b: Spot) -> tuple[int, int] | None:
        """Return first and last line; None if `a` cannot lead to `b` (another call of it)."""
        start = line_after(a) if a.is_direct else a.line
        if start >= b.line > a.line:
            start = a.line  # one line alone is that of a call
        if b.offset > a.offset:
            return min(start, b.line), max(start, b.line)
        key = (a.file, a.code.co_firstlineno, a.offset, b.offset)
        if key not in self.loops:
            self.loops[key] = loop_around(a.code, a.offset, b.offset)
        loop = self.loops[key]
        if loop is None:
            return None
        first, last = loop
        if last <= a.line:  # nothing follows in the loop's body
            return min(first, b.line), b.line
        if b.line <= first:  # nothing precedes in the loop's body
            return min(start, last), last
        return start, b.line


def line_after(spot: Spot) -> int:
    """Return the line on which something may follow a call.

    It is the next one where the call is the end of its line, as `loss.backward()` is.
    """
    code, at = spot.code.co_code, spot.offset + 2
    while at < len(code) and opname[code[at]] == "CACHE":
        at += 2
    if at >= len(code) or opname[code[at]] != "POP_TOP":
        return spot.line
    lines = (line for begin, end, line in spot.code.co_lines() if begin <= at + 2 < end)
    return max(spot.line, next(lines, None) or spot.line)


def innermost(stack: Stack) -> Place | None:
    """Return the line at which the innermost function was."""
    return (stack[-1].file, stack[-1].line, stack[-1].line) if stack else None


def loop_around(code: CodeType, later: int, earlier: int) -> tuple[int, int] | None:
    """Return first and last line of the innermost loop from one instruction back to another.

    The last line is that of the statements from which it jumps back: exception handlers lie behind
    the function's end, so their place says nothing.
    """
    jumps = [
        (target, source)
        for source, target in jumps_back(code.co_code)
        if source + SLACK >= later and target - SLACK <= earlier
    ]
    if not jumps:
        return None
    start = max(target for target, _ in jumps)
    ends = {source for target, source in jumps if target == start}
    first, last = 0, 0
    for begin, end, line in code.co_lines():
        if line is None:
            continue
        if begin <= start < end:
            first = line
        if any(begin <= source < end or end == source for source in ends):
            last = max(last, line)
    return first or last, last


def jumps_back(instructions: bytes) -> Iterator[tuple[int, int]]:
    """Yield each jump to an earlier instruction: where it is and where it leads [bytes]."""
    extended = 0
    for offset in range(0, len(instructions), 2):
        operation, argument = instructions[offset], instructions[offset + 1] | extended
        extended = argument << 8 if operation == EXTENDED_ARG else 0
        if "BACKWARD" in opname[operation]:
            yield offset, max(0, offset + 2 - 2 * argument)
        elif operation in hasjabs and 2 * argument < offset:  # Python 3.10
            yield offset, 2 * argument
