"""Says which edits can be made while a script runs: those of functions that are called anew.

In: a parsed file, an edit, and the lines between two markers of a step. Out: whether the function
that the edit is in can get another code. Code of a module has run when training begins. A generator
goes on with the code that it began with, and so does the function that holds the training loop.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from steptime.measure.source.loop_edits import EXACT, Edit

_Function = ast.FunctionDef | ast.AsyncFunctionDef


def live_edits(tree: ast.Module, edits: Iterable[Edit], *, steps: Iterable[int]) -> list[Edit]:
    """Return the edits that keep the same numbers and can be made while the script runs.

    Args:
        tree: the file that they are in.
        edits: of it.
        steps: lines of this file at which a step has its markers.
    """
    running = [_function_at(tree, line) for line in steps if _is_in_loop(tree, line)]
    places = [(edit, _function_at(tree, edit.start[0])) for edit in edits if edit.keeps == EXACT]
    return [
        edit
        for edit, function in places
        if function is not None and not any(one is function for one in running)
    ]


def _is_in_loop(tree: ast.Module, line: int) -> bool:
    """Return whether a loop of the innermost function with a line goes around that line.

    Without one, a function that each step comes by is called by each step.
    """
    function = _function_at(tree, line)
    first = 0 if function is None else function.lineno
    loops = [one for one in ast.walk(tree) if isinstance(one, ast.For | ast.While)]
    return any(first < one.lineno <= line <= (one.end_lineno or one.lineno) for one in loops)


def _function_at(tree: ast.Module, line: int) -> _Function | None:
    """Return the innermost plain function with a line in its body; None for a generator."""
    found = None
    for node in ast.walk(tree):  # outer ones come first
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            last = node.end_lineno or node.lineno
            found = node if node.body[0].lineno <= line <= last else found
    if isinstance(found, ast.AsyncFunctionDef) or (found is not None and _yields(found)):
        return None
    return found


def _yields(function: _Function) -> bool:
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Yield | ast.YieldFrom):
            return True
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            waiting += ast.iter_child_nodes(node)
    return False
