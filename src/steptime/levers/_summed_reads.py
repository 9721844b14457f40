"""Which reads of the script's source are only summed, and their sum only computed with or printed.

In: a place in a source file. Out: whether `total += loss.item()` there may add a number that is not
known yet. It may if `total` is a variable of that function, or of the module outside its functions,
that is set to a number, added to by such reads, and otherwise stands first in an operation, after a
number, in an f-string, or in a call of `print`, `float`, `int`, `round` or `str`. All else, and
whatever cannot be read, means no.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator
from functools import lru_cache

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
TAKERS = ("print", "float", "int", "round", "str")
SEEING_ALL = ("locals", "vars", "globals", "exec", "eval")


def is_only_summed(file: str, first_line: int, name: str, line: int) -> bool:
    """Return whether the read in a line of a function (its name and first line) is only summed.

    A module's name is `<module>`.
    """
    tree = parse(file)
    scope = None if tree is None else find_scope(tree, first_line, name)
    if scope is None:
        return False
    adding = [one for one in own_nodes(scope) if is_adding(one) and spans(one, line)]
    if len(adding) != 1:
        return False
    target = adding[0].target  # type: ignore[attr-defined]
    return keeps_to_itself(scope, target.id)


@lru_cache(maxsize=64)
def parse(file: str) -> ast.Module | None:
    """Return a file's syntax; None if it has none."""
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def find_scope(tree: ast.Module, first_line: int, name: str) -> ast.AST | None:
    """Return the function that begins in a line, where its decorators do."""
    if name == "<module>":
        return tree
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == name:
            lines = [node.lineno, *(one.lineno for one in node.decorator_list)]
            if min(lines) == first_line:
                return node
    return None


def own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a scope without those of scopes inside it."""
    for child in ast.iter_child_nodes(scope):
        yield child
        if not isinstance(child, (*FUNCTIONS, *COMPREHENSIONS)):
            yield from own_nodes(child)


def spans(node: ast.AST, line: int) -> bool:
    """Return whether a statement has a part in a line."""
    first = getattr(node, "lineno", line + 1)
    return bool(first <= line <= (getattr(node, "end_lineno", None) or first))


def is_adding(node: ast.AST) -> bool:
    """Return whether it is `NAME += ….item()`, or that times something."""
    if not isinstance(node, ast.AugAssign) or not isinstance(node.op, ast.Add):
        return False
    value = node.value
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult):
        reads = [one for one in ast.walk(value.right) if is_read(one)]
        value = value.left if not reads else value
    return isinstance(node.target, ast.Name) and is_read(value)


def is_read(node: ast.AST) -> bool:
    """Return whether it is a call of a method `item` without arguments."""
    is_call = isinstance(node, ast.Call) and not node.args and not node.keywords
    return is_call and isinstance(node.func, ast.Attribute) and node.func.attr == "item"  # type: ignore[attr-defined]


def keeps_to_itself(scope: ast.AST, name: str) -> bool:
    """Return whether a variable of the scope is only set to numbers, summed and printed."""
    arguments = getattr(scope, "args", None)
    if arguments is not None and name in {one.arg for one in ast.walk(arguments) if is_arg(one)}:  # type: ignore[attr-defined]
        return False
    allowed: set[int] = set()
    for node in own_nodes(scope):
        if isinstance(node, ast.Name) and node.id in SEEING_ALL:
            return False
        if isinstance(node, (ast.Global, ast.Nonlocal)) and name in node.names:
            return False
        allowed.update(id(one) for one in uses(node))
    named = [one for one in ast.walk(scope) if isinstance(one, ast.Name) and one.id == name]
    return all(id(one) in allowed for one in named)


def is_arg(node: ast.AST) -> bool:
    """Return whether it is a parameter of a function."""
    return isinstance(node, ast.arg)


def uses(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the children of a node that may be such a variable."""
    if isinstance(node, ast.Assign) and is_number(node.value):
        yield from node.targets
    elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple):
        for target in node.targets:
            if isinstance(target, ast.Tuple) and all(map(is_number, node.value.elts)):
                yield from target.elts
    elif isinstance(node, ast.AugAssign) and is_adding(node):
        yield node.target
    elif isinstance(node, ast.BinOp):
        yield node.left
        if is_number(node.left):
            yield node.right
    elif isinstance(node, ast.FormattedValue):
        yield node.value
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in TAKERS:
        yield from node.args


def is_number(node: ast.AST) -> bool:
    """Return whether it is a number as such."""
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)
