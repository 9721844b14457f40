"""Sorts sampled stacks by the line of the script that was running, and by what it had called.

In: the stack of the thread that steps, which is read and released at once. Out: rows for the line
`sl`. The time between two samples belongs to the second one: a long call of C that holds the
interpreter lock (a collection of garbage, a tensor made of a list) is seen when it returns, at the
instruction that made it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import islice
from types import CodeType, FrameType
from typing import Any, NamedTuple

from ...record.buckets import BUCKETS, EVALUATION
from ..sites.file_owners import LIBRARYS, USERS, FileOwners
from ..sites.frames import MAX_FRAMES

MAX_KEYS = 4_000
"""Instructions that are told apart; a script has a few hundred that take time."""

MAX_ROWS = 80
_OURS = __name__.partition(".")[0]

Position = tuple[int, int | None, int | None, int | None]
"""Line, column, last line, last column; only the line before Python 3.11."""


class StackPlace(NamedTuple):
    """Where a function stands: what of its frame is read, for a frame keeps its values alive."""

    code: CodeType
    offset: int
    line: int
    module: Any


class Key(NamedTuple):
    """Where a sample was taken: the phase, the script's instruction, and whom that had called."""

    bucket: int
    code: CodeType | None
    offset: int
    function: str
    callee: str


class Spent:
    """What was sampled at one instruction: how often, how long, and when on average."""

    __slots__ = ("moment", "ns", "num", "position")

    def __init__(self, position: Position) -> None:
        self.position = position
        self.num = 0
        self.ns = 0
        self.moment = 0  # the time multiplied by the number of the update


class LineBook:
    """The samples so far, by instruction."""

    def __init__(self, owners: FileOwners) -> None:
        self.owners = owners
        self.found: dict[Key, Spent] = {}
        self.libraries: dict[str, int] = {}  # ns of steps in functions of each, by package
        self.lost_ns = 0

    def add(self, stack: Sequence[StackPlace], bucket: int, ns: int, update: int) -> None:
        """Take a sample: `ns` have passed since the one before, in this update."""
        key, line = self._find(stack, bucket)
        if bucket < EVALUATION and (name := self._library(stack)):
            self.libraries[name] = self.libraries.get(name, 0) + ns
        spent = self.found.get(key)
        if spent is None:
            if len(self.found) >= MAX_KEYS:
                self.lost_ns += ns
                return
            spent = self.found[key] = Spent(position_of(key.code, key.offset, line))
        spent.num += 1
        spent.ns += ns
        spent.moment += ns * update

    def _find(self, stack: Sequence[StackPlace], bucket: int) -> tuple[Key, int]:
        """Return the innermost instruction of the user's; of a library's where none of his runs."""
        callee = of_library = ""
        best: StackPlace | None = None
        for depth, one in enumerate(stack):
            owner = self.owners.owner(one.code.co_filename)
            if owner == USERS:
                key = Key(bucket, one.code, one.offset, function_around(stack[depth:]), callee)
                return key, one.line
            if owner == LIBRARYS and best is None:
                best, of_library = one, callee
            if not is_ours(one):
                callee = name_of(one)
        if best is None:
            return Key(bucket, None, 0, "", ""), 0
        return Key(bucket, best.code, best.offset, best.code.co_name, of_library), best.line

    def _library(self, stack: Sequence[StackPlace]) -> str:
        """Return the package of the innermost function, if that is a library's."""
        inner = next((one for one in stack if not is_ours(one)), None)
        if inner is None or self.owners.owner(inner.code.co_filename) != LIBRARYS:
            return ""
        return str(inner.module).partition(".")[0]

    def rows(self) -> list[list[Any]]:
        """Return the rows of the line `sl`, the longest first."""
        ordered = sorted(self.found.items(), key=lambda item: -item[1].ns)
        return [
            [
                *(BUCKETS[key.bucket], file_of(key.code), *spent.position),
                *(key.function, key.callee, spent.num, spent.ns),
                round(spent.moment / max(1, spent.ns), 1),
            ]
            for key, spent in ordered[:MAX_ROWS]
        ]

    def total_ns(self) -> int:
        """Return the time of all samples."""
        return self.lost_ns + sum(spent.ns for spent in self.found.values())


def stack_of(frame: FrameType | None) -> list[StackPlace]:
    """Return where a function and those around it stand, innermost first."""
    found: list[StackPlace] = []
    while frame is not None and len(found) < MAX_FRAMES:
        code = frame.f_code
        line = frame.f_lineno or code.co_firstlineno
        found.append(StackPlace(code, frame.f_lasti, line, frame.f_globals.get("__name__")))
        frame = frame.f_back
    return found


def is_ours(one: StackPlace) -> bool:
    """Return whether a function is a wrapper of ours, which may bear the name of torch's file."""
    return str(one.module).startswith(_OURS)


def name_of(one: StackPlace) -> str:
    """Return the dotted name of a running function."""
    name = getattr(one.code, "co_qualname", one.code.co_name)
    return f"{one.module}.{name}" if type(one.module) is str else name


def function_around(stack: Sequence[StackPlace]) -> str:
    """Return the name of the function that an instruction is in, comprehensions left out."""
    for one in stack:
        code = one.code
        if not code.co_name.startswith("<") or code.co_name == "<module>":
            return str(getattr(code, "co_qualname", code.co_name)).replace("<locals>.", "")
    return ""


def position_of(code: CodeType | None, offset: int, line: int) -> Position:
    """Return where an instruction stands in its file."""
    if code is None or not hasattr(code, "co_positions"):
        return line, None, None, None
    first, last, begin, end = next(islice(code.co_positions(), offset // 2, None), (None,) * 4)
    return (line, None, None, None) if first is None else (first, begin, last, end)


def file_of(code: CodeType | None) -> str:
    """Return the path of an instruction's file; the made-up name of a cell as it is."""
    if code is None:
        return ""
    name = code.co_filename
    return name if name.startswith("<") else os.path.abspath(name)
