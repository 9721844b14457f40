"""Finds the method that reads a sample: the line that an owner changes where reading is slow.

In: parsed files of the user's, and the classes of data sets that training read from. Out: class,
file and line of the method. The loop over a loader is one line, whatever the data set does.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping

_METHODS = ("__getitems__", "__getitem__", "__iter__")
"""What a loader calls, if the class has it, in this order."""


def find_reads(
    trees: Mapping[str, ast.Module], names: Collection[str]
) -> tuple[tuple[str, str, int], ...]:
    """Return class, file and line of each method of these classes that reads samples."""
    return tuple(
        (node.name, file, line)
        for file, tree in sorted(trees.items())
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and node.name in names
        if (line := _line(node)) is not None
    )


def _line(cls: ast.ClassDef) -> int | None:
    own = {one.name: one.lineno for one in cls.body if isinstance(one, ast.FunctionDef)}
    return next((own[name] for name in _METHODS if name in own), None)
