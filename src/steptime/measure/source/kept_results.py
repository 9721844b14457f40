"""Finds lines of a training loop that keep results of each step: sums of losses, growing lists.

In: a parsed file. Out: `kept_graph` (a loss or a model's result is kept with the graph that it came
from, after its backward) and `kept_tensors` (a list gets a tensor in each step; that is no fault by
itself, but the line to look at where memory grows). Only loops are judged that call backward on the
loss themselves, so nobody needs the kept graph; what backward is called on later is left alone.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from steptime.measure.source.accumulation import is_backward, last_name

KEPT_GRAPH, KEPT_TENSORS = "kept_graph", "kept_tensors"

_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_NUMBERS = {"item", "tolist", "numpy", "size", "dim", "numel", "argmax"}
"""Methods whose result is no tensor with numbers of the graph."""
_WITHOUT_GRAPH = {"detach", "data", "detach_"}
_SAME = {"cpu", "clone", "to", "float", "double", "half", "mean", "sum", "squeeze", "contiguous"}
_EMPTIES = {"clear", "pop", "popleft"}


def find_kept(tree: ast.Module) -> list[tuple[str, int]]:
    """Return the code and line of each place, in the order of lines."""
    found: set[tuple[str, int]] = set()
    later = set(_names_of_backwards(tree))
    for loop in ast.walk(tree):
        if isinstance(loop, _LOOPS):
            found.update(_in_loop(loop, later))
    return sorted(found, key=lambda place: (place[1], place[0]))


def _in_loop(
    loop: ast.For | ast.AsyncFor | ast.While, later: set[str]
) -> Iterator[tuple[str, int]]:
    own = list(_own(loop.body))
    calls = [node for node in own if isinstance(node, ast.Call) and is_backward(node)]
    if any(call.args or call.keywords for call in calls):
        return  # the graph is kept on purpose
    losses = {last_name(c.func.value) for c in calls}  # type: ignore[attr-defined]
    if not losses - {None}:
        return
    names = {name for name in losses if name} | set(_results(own, losses))
    renewed = set(_renewed(own))
    for node in own:
        kept = _kept_by(node)
        if kept is None:
            continue
        holder, value = kept
        name = last_name(holder)
        if name is None or name in renewed or name in later or name in names:
            continue
        what = _what(value, names)
        if what == KEPT_GRAPH or (what == KEPT_TENSORS and isinstance(node, ast.Expr)):
            yield what, holder.lineno


def _own(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """Yield the nodes of a loop's body, without inner loops and functions."""
    pending: list[ast.AST] = list(body)
    while pending:
        node = pending.pop(0)
        yield node
        inner = (*_LOOPS, *_SCOPES)
        pending += [one for one in ast.iter_child_nodes(node) if not isinstance(one, inner)]


def _kept_by(node: ast.AST) -> tuple[ast.expr, ast.expr] | None:
    """`total += value`, `total = total + value` or `values.append(value)`: holder and value."""
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
        return node.target, node.value
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp):
        target, value = node.targets[0], node.value
        is_sum = isinstance(value.op, ast.Add) and ast.dump(value.left) == _loaded(target)
        return (target, value.right) if is_sum else None
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        call = node.value
        if isinstance(call.func, ast.Attribute) and call.func.attr == "append" and call.args:
            return call.func.value, call.args[0]
    return None


def _loaded(target: ast.expr) -> str:
    """Return how the target of an assignment looks where it is read."""
    return ast.dump(ast.parse(ast.unparse(target), mode="eval").body)


def _what(value: ast.expr, names: set[str]) -> str | None:
    """Return what a value keeps of these names: their graph, their numbers, or nothing."""
    if isinstance(value, ast.Name):
        return KEPT_GRAPH if value.id in names else None
    if isinstance(value, ast.BinOp):
        kinds = {_what(value.left, names), _what(value.right, names)}
        return next((kind for kind in (KEPT_GRAPH, KEPT_TENSORS) if kind in kinds), None)
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        return _through(value.func, names)
    if isinstance(value, ast.Attribute):
        return _through(value, names)
    return None


def _through(part: ast.Attribute, names: set[str]) -> str | None:
    inner = _what(part.value, names)
    if inner is None or part.attr in _NUMBERS:
        return None
    if part.attr in _WITHOUT_GRAPH:
        return KEPT_TENSORS
    return inner if part.attr in _SAME else None


def _results(own: list[ast.AST], losses: set[str | None]) -> Iterator[str]:
    """Yield the names that losses are computed from first: `output` of `criterion(output, y)`."""
    made = {
        target.id
        for node in own
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in own:
        if isinstance(node, ast.Assign) and last_name(node.targets[0]) in losses:
            call = node.value
            if isinstance(call, ast.Call) and call.args and isinstance(call.args[0], ast.Name):
                yield from {call.args[0].id} & made


def _renewed(own: list[ast.AST]) -> Iterator[str]:
    """Yield the names that the loop itself sets or empties, so that they do not grow."""
    for node in own:
        if isinstance(node, ast.Assign) and _kept_by(node) is None:
            for target in node.targets:
                yield from (name for name in [last_name(target)] if name)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in _EMPTIES:
                yield from (name for name in [last_name(node.func.value)] if name)
        elif isinstance(node, ast.Delete):
            yield from (name for name in map(last_name, node.targets) if name)


def _names_of_backwards(tree: ast.Module) -> Iterator[str]:
    """Yield the names that a backward reaches through one assignment, and queues of fixed length.

    Losses that are called by a plain name are left out: they are the loop's own.
    """
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call)]
    roots = {last_name(c.func.value) for c in calls if is_backward(c)}  # type: ignore[attr-defined]
    for call in calls:
        if is_backward(call):
            owner = call.func.value  # type: ignore[attr-defined]
            yield from () if isinstance(owner, ast.Name) else _loaded_names(owner)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.expr):
            continue
        if last_name(node.targets[0]) in roots:
            yield from _loaded_names(node.value)
        elif isinstance(node.value, ast.Call) and last_name(node.value.func) == "deque":
            yield from (name for name in [last_name(node.targets[0])] if name)
    yield from (name for name in roots if name and _is_summed(tree, name))


def _is_summed(tree: ast.Module, name: str) -> bool:
    """Return whether something is added to a name on which backward is called."""
    return any(
        isinstance(node, ast.AugAssign) and last_name(node.target) == name
        for node in ast.walk(tree)
    )


def _loaded_names(value: ast.AST) -> Iterator[str]:
    for node in ast.walk(value):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
