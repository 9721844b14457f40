"""Which branches of a method can run, given the attributes that its object was seen to have.

In: statements, and plain values by the names of attributes. Out: the statements without the
branches whose condition these values decide. What they do not decide stays.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence

_COMPARES: Mapping[type[ast.cmpop], Callable[[object, object], bool]] = {
    ast.Eq: lambda one, other: one == other,
    ast.NotEq: lambda one, other: one != other,
    ast.Is: lambda one, other: one is other,
    ast.IsNot: lambda one, other: one is not other,
    ast.In: lambda one, other: isinstance(other, tuple) and one in other,
    ast.NotIn: lambda one, other: isinstance(other, tuple) and one not in other,
}


class _UnknownError(Exception):
    """A condition depends on more than what was seen."""


def live(body: Sequence[ast.stmt], words: Mapping[str, object]) -> Iterator[ast.stmt]:
    """Yield statements, and in place of an `if` that is decided those of its branch."""
    for node in body:
        taken = _branch(node, words)
        if taken is None:
            yield node
        else:
            yield from live(taken, words)
            if taken and isinstance(taken[-1], (ast.Return, ast.Raise)):
                return


def _branch(node: ast.stmt, words: Mapping[str, object]) -> Sequence[ast.stmt] | None:
    if not isinstance(node, ast.If):
        return None
    try:
        return node.body if _value(node.test, words) else node.orelse
    except _UnknownError:
        return None


def _value(node: ast.expr, words: Mapping[str, object]) -> object:
    """Return the value of a condition.

    Raises:
        _UnknownError: it is not known.
    """
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        return tuple(_value(one, words) for one in node.elts)
    if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "self" and node.attr in words:
        return words[node.attr]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return not _value(node.operand, words)
    if isinstance(node, ast.BoolOp):
        values = [bool(_value(one, words)) for one in node.values]
        return all(values) if isinstance(node.op, ast.And) else any(values)
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        compare = _COMPARES.get(type(node.ops[0]))
        if compare is not None:
            return compare(_value(node.left, words), _value(node.comparators[0], words))
    raise _UnknownError
