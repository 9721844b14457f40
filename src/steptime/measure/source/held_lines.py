"""Finds the line that gives a data set an attribute, or else the one that makes the data set.

In: parsed files of the user's, and attributes by class and file. Out: places. A class in an
installed library has no line of the user's but the call that makes it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping

Held = tuple[str, str, str]
"""The class of a data set, its attribute, and the file of the class."""


def find_held_lines(
    trees: Mapping[str, ast.Module], held: Iterable[Held]
) -> list[tuple[str, str, str, int]]:
    """Return class, attribute, file and line for each attribute whose line was found."""
    found = []
    for holder, attribute, file in held:
        place = _place(trees, holder, attribute, file)
        if place is not None:
            found.append((holder, attribute, *place))
    return found


def _place(
    trees: Mapping[str, ast.Module], holder: str, attribute: str, file: str
) -> tuple[str, int] | None:
    tree = trees.get(file)
    for cls in ast.walk(tree) if tree is not None else ():
        if isinstance(cls, ast.ClassDef) and cls.name == holder:
            line = min(_assignments(cls, attribute), default=None)
            if line is not None:
                return file, line
    for name, other in sorted(trees.items()):
        line = min(_calls(other, holder), default=None)
        if line is not None:
            return name, line
    return None


def _assignments(cls: ast.ClassDef, attribute: str) -> Iterator[int]:
    """Yield the lines that set an attribute of the first argument of a method."""
    for node in ast.walk(cls):
        if not isinstance(node, (ast.Assign, ast.AnnAssign)):
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for part in (part for target in targets for part in ast.walk(target)):
            if isinstance(part, ast.Attribute) and part.attr == attribute:
                yield node.lineno


def _calls(tree: ast.Module, name: str) -> Iterator[int]:
    """Yield the lines that call something of this name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = node.func
            last = called.attr if isinstance(called, ast.Attribute) else None
            if name in (last, called.id if isinstance(called, ast.Name) else None):
                yield node.lineno
