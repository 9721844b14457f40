"""Which reads of the script's source may give their number later, as it is only summed or printed.

In: a place in a source file. Out: what `total += loss.item()` or `last = loss.item()` there may be
until somebody needs its digits; both may multiply the number by another one, or divide it. `total`
and `last` are variables of that function, or of the module outside its functions, or items of a
dictionary or list that is such a variable and was written out with numbers. They are set to
numbers, set or added to by such reads, and otherwise stand first in an operation, after a number,
in an f-string, or in a call of `print`, `float`, `int`, `round` or `str`, so that whoever gets the
result gets a plain number. All else, and whatever cannot be read, means no: attributes of objects
and lists that are appended to are seen by others (`sum` and `np.mean` add other types otherwise).
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import lru_cache
from typing import Any

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
OPERATIONS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow)
TAKERS = ("print", "float", "int", "round", "str")
KNOWN = (*TAKERS, "len")
SEEING_ALL = ("locals", "vars", "globals", "exec", "eval")


class Use(Enum):
    """What becomes of the number of a read."""

    NOW = "it must be known at once"
    ADDED = "it is added to a sum"
    KEPT = "it is kept in a variable"
    COMPUTED = "it is multiplied or divided once, and kept"


def find_use(file: str, first_line: int, name: str, line: int) -> Use:
    """Return what becomes of the read in a line of a function (its name and first line).

    A module's name is `<module>`.
    """
    tree = parse(file)
    scope = None if tree is None else find_scope(tree, first_line, name)
    if scope is None:
        return Use.NOW
    found = [one for one in own_nodes(scope) if is_taking(one) and spans(one, line)]
    if len(found) != 1 or num_reads(scope, found[0]) != 1:
        return Use.NOW
    taking: Any = found[0]
    if not keeps_to_itself(scope, variable_of(target_of(taking)).id):
        return Use.NOW
    if is_adding(taking):
        return Use.ADDED
    return Use.KEPT if is_read(taking.value) else Use.COMPUTED


def has_own_meaning(names: Mapping[str, Any]) -> bool:
    """Return whether a module has no other `print` or `round`, say, than Python's."""
    return not any(name in names for name in KNOWN)


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
    """Return whether a node has a part in a line."""
    first = getattr(node, "lineno", line + 1)
    return bool(first <= line <= (getattr(node, "end_lineno", None) or first))


def num_reads(scope: ast.AST, statement: Any) -> int:
    """Return how many reads are in the lines of a statement, or what could be one."""
    lines = range(statement.lineno, statement.end_lineno + 1)
    said = [one for one in ast.walk(scope) if says_item(one)]
    return sum(any(spans(one, line) for line in lines) for one in said)


def says_item(node: ast.AST) -> bool:
    """Return whether it names a method `item`."""
    if isinstance(node, ast.Attribute):
        return node.attr == "item"
    return isinstance(node, ast.Constant) and node.value == "item"


def is_taking(node: ast.AST) -> bool:
    """Return whether it adds a read to a variable, or sets one to it."""
    if is_adding(node):
        return True
    is_one = isinstance(node, ast.Assign) and len(node.targets) == 1
    return is_one and variable_of(target_of(node)) is not None and is_term(node.value)  # type: ignore[attr-defined]


def is_adding(node: ast.AST) -> bool:
    """Return whether it is `total += ….item()`, written so or as `total = total + ….item()`."""
    if isinstance(node, ast.AugAssign):
        term = node.value if isinstance(node.op, ast.Add) else None
    elif isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp):
        is_same = ast.unparse(node.value.left) == ast.unparse(target_of(node))
        is_sum = len(node.targets) == 1 and isinstance(node.value.op, ast.Add)
        term = node.value.right if is_sum and is_same else None
    else:
        return False
    return term is not None and variable_of(target_of(node)) is not None and is_term(term)


def target_of(node: Any) -> Any:
    """Return what an assignment sets, or the first of it."""
    return node.target if isinstance(node, ast.AugAssign) else node.targets[0]


def is_term(node: ast.AST) -> bool:
    """Return whether it is a read, or one that is multiplied or divided once."""
    if not isinstance(node, ast.BinOp):
        return is_read(node)
    if is_read(node.left):
        return isinstance(node.op, (ast.Mult, ast.Div))
    return isinstance(node.op, ast.Mult) and is_count(node.left) and is_read(node.right)


def is_read(node: ast.AST) -> bool:
    """Return whether it is a call of a method `item` without arguments."""
    is_call = isinstance(node, ast.Call) and not node.args and not node.keywords
    return is_call and isinstance(node.func, ast.Attribute) and node.func.attr == "item"  # type: ignore[attr-defined]


def is_number(node: ast.AST) -> bool:
    """Return whether it is a number as such."""
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def is_count(node: ast.AST) -> bool:
    """Return whether it is a number for certain: one as such, or the size of something."""
    if isinstance(node, ast.Subscript):
        is_shape = isinstance(node.value, ast.Attribute) and node.value.attr == "shape"
        return is_shape and is_number(node.slice)
    if not isinstance(node, ast.Call) or len(node.args) != 1 or node.keywords:
        return is_number(node)
    if isinstance(node.func, ast.Attribute):
        return node.func.attr == "size" and is_number(node.args[0])
    return isinstance(node.func, ast.Name) and node.func.id == "len"


def variable_of(node: ast.AST) -> Any:
    """Return the variable's name that it is, or of which it is an item by a plain key."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        node = node.value
    return node if isinstance(node, ast.Name) else None


def keeps_to_itself(scope: ast.AST, name: str) -> bool:
    """Return whether a variable of the scope is only set to numbers, summed and printed."""
    own = list(own_nodes(scope))
    has_items = any(makes_items(one) and target_of(one).id == name for one in own)
    if not any(is_set(one, name) for one in own):
        return False  # it is a variable of the module, or of the function around this one
    allowed: set[int] = set()
    for node in own:
        if isinstance(node, ast.Name) and node.id in SEEING_ALL:
            return False
        if isinstance(node, (ast.Global, ast.Nonlocal)) and name in node.names:
            return False
        allowed.update(id(variable_of(one)) for one in uses(node, has_items=has_items))
    for node in ast.walk(scope):
        if not names_bound_by(node).isdisjoint((name, *KNOWN)):
            return False
        if isinstance(node, ast.Name) and node.id in KNOWN and not isinstance(node.ctx, ast.Load):
            return False
        if isinstance(node, ast.Name) and node.id == name and id(node) not in allowed:
            return False
    return True


def is_set(node: ast.AST, name: str) -> bool:
    """Return whether it is a variable where it is set."""
    return isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)


def names_bound_by(node: ast.AST) -> set[Any]:
    """Return names that a node other than a name itself may give a meaning to."""
    if isinstance(node, ast.keyword):
        return set()
    return {getattr(node, field, None) for field in ("name", "asname", "arg", "rest")}


def uses(node: ast.AST, *, has_items: bool) -> Iterator[ast.AST]:
    """Yield the children of a node that may be such a variable, or an item of it.

    What has items is not computed with itself: two lists would hold the same sum.
    """
    if isinstance(node, ast.Assign):
        yield from set_by(node)
    elif isinstance(node, (ast.AugAssign, ast.BinOp)):
        operands = (one for one in operands_of(node) if isinstance(node.op, OPERATIONS))
        yield from (one for one in operands if not (has_items and isinstance(one, ast.Name)))
    elif isinstance(node, ast.FormattedValue):
        yield node.value
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in TAKERS:
        yield from node.args


def operands_of(node: ast.AugAssign | ast.BinOp) -> Iterator[ast.AST]:
    """Yield the operands that may be late, as the result is not."""
    if isinstance(node, ast.BinOp):
        yield node.left
        left, right = variable_of(node.left), variable_of(node.right)
        is_same = left is not None and right is not None and left.id == right.id
        if is_same or is_count(node.left):
            yield node.right
    elif is_adding(node) or is_count(node.value):
        yield node.target


def set_by(node: ast.Assign) -> Iterator[ast.AST]:
    """Yield what an assignment sets to a number, or to numbers that are written out."""
    value = node.value
    if is_number(value) or is_taking(node):
        yield from node.targets
    elif makes_items(node):
        yield target_of(node)
    elif isinstance(value, ast.Tuple) and all(map(is_number, value.elts)):
        for target in node.targets:
            if isinstance(target, ast.Tuple):
                yield from target.elts


def makes_items(node: ast.AST) -> bool:
    """Return whether it sets one variable to a dictionary or list of numbers, written out."""
    if not isinstance(node, ast.Assign) or len(node.targets) != 1:
        return False
    if isinstance(node.value, ast.Dict):
        values: list[Any] = node.value.values
        is_plain = all(isinstance(key, ast.Constant) for key in node.value.keys)
    else:
        values = getattr(node.value, "elts", [])
        is_plain = isinstance(node.value, ast.List)
    return is_plain and all(map(is_number, values)) and isinstance(target_of(node), ast.Name)
