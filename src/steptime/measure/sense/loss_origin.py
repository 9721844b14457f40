"""Finds the line that computes the loss from which a backward call begins.

In: a parsed file, and the line of the call. Out: the last line before it, in the same function,
that assigns the name in front of `.backward()`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def loss_rows(
    trees: Mapping[str, ast.Module],
    places: Iterable[tuple[str, int]],
    lines: Mapping[str, Sequence[str]],
) -> list[list[object]]:
    """Return a row for each place that is a backward call: file, line, that of the loss, text."""
    found = [(file, at, find_loss_line(trees[file], at)) for file, at in places if file in trees]
    return [[file, at, made, lines[file][made - 1].strip()] for file, at, made in found if made]


def find_loss_line(tree: ast.Module, line: int) -> int | None:
    """Return the line of the loss; None where the backward call does not name one."""
    scope = _scope_at(tree, line)
    calls = [one for one in ast.walk(scope) if isinstance(one, ast.Call)]
    backwards = [
        call.func.value
        for call in calls
        if isinstance(call.func, ast.Attribute)
        and call.func.attr == "backward"
        and call.lineno <= line <= (call.end_lineno or call.lineno)
    ]
    names = {one.id for owner in backwards for one in ast.walk(owner) if isinstance(one, ast.Name)}
    found = [at for name, at in _assigned(scope) if name in names and at <= line]
    return max(found, default=None)


def _scope_at(tree: ast.Module, line: int) -> ast.AST:
    """Return the innermost function around a line, or the module."""
    around = [
        one
        for one in ast.walk(tree)
        if isinstance(one, _FUNCTIONS) and one.lineno <= line <= (one.end_lineno or one.lineno)
    ]
    return max(around, key=lambda one: one.lineno, default=tree)


def _assigned(scope: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield each name that an assignment with a call or an operation sets, and its line."""
    for one in ast.walk(scope):
        if isinstance(one, ast.Assign) and not isinstance(one.value, ast.Constant):
            for target in one.targets:
                if isinstance(target, ast.Name):
                    yield target.id, one.lineno
