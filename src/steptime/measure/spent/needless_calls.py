"""Tells from the source what an instruction does that took time: calls known to be needless.

In: a parsed file and the place of an instruction. Out: a word for it, or None. Nothing here knows
how long it took; `spent_lines` joins both.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping

from steptime.measure.source.accumulation import last_name
from steptime.record.loaders.batch_rows import SpentRow

COLLECTS, EMPTIES, TENSOR = "collects_garbage", "empties_cache", "tensor_of_arrays"
WEIGHTS, HISTOGRAMS = "weights_one_by_one", "histograms"
FRAME_ROW, FILE_CHUNK = "row_of_frame", "chunk_of_file"

_MAKERS = frozenset(("tensor", "as_tensor", "FloatTensor", "LongTensor", "Tensor", "DoubleTensor"))
_HISTOGRAMS = frozenset(("add_histogram", "add_figure", "Histogram"))
_OF_WEIGHTS = frozenset(
    ("state_dict", "parameters", "named_parameters", "buffers", "named_buffers")
)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module, ast.Lambda)
_LISTS = (ast.List, ast.ListComp, ast.GeneratorExp)
_LOOPS = (ast.For, ast.ListComp, ast.GeneratorExp, ast.DictComp, ast.SetComp)


def needless_rows(trees: Mapping[str, ast.Module], rows: Iterable[SpentRow]) -> list[list[object]]:
    """Return the rows of `source.json`: a word, a file, a line, and a column (-1: not known)."""
    return [
        [code, row.file, row.line, -1 if row.column is None else row.column]
        for row in sorted(rows, key=str)
        if row.file in trees and (code := find_needless(trees[row.file], row)) is not None
    ]


def find_needless(tree: ast.Module, row: SpentRow) -> str | None:
    """Return what the instruction of a row does, if that is known to be needless in each step."""
    chain = nodes_at(tree, row)
    scope = next((one for one in chain if isinstance(one, _SCOPES)), tree)
    inside = chain[: chain.index(scope)] if scope in chain else chain
    calls = [one for one in inside if isinstance(one, ast.Call)]
    if calls and not row.callee:
        if code := _of_python(tree, calls[0]):
            return code
        if _is_list_of_torch(calls[0], scope):
            return TENSOR
    if any(last_name(call.func) in _HISTOGRAMS for call in calls):
        return HISTOGRAMS
    if any(last_name(call.func) == "empty_cache" for call in calls[:1]):
        return EMPTIES
    if _goes_through_weights(scope, inside):
        return WEIGHTS
    if row.function.endswith("__getitem__"):
        library = row.callee.partition(".")[0]
        return {"pandas": FRAME_ROW, "h5py": FILE_CHUNK}.get(library)
    return None


def nodes_at(tree: ast.Module, row: SpentRow) -> list[ast.AST]:
    """Return the nodes that hold an instruction, innermost first.

    Without columns (Python 3.10), a line of one statement with one call is that call.
    """
    begin = (row.line, row.column or 0)
    end = (row.end_line or row.line, row.end_column or 0)
    found = [
        node
        for node in ast.walk(tree)
        if isinstance(node, (ast.expr, ast.stmt))
        and (node.lineno, node.col_offset if row.column is not None else 0) <= begin
        and end <= (node.end_lineno or 0, node.end_col_offset or 0)
    ]
    if row.column is None:
        own = [one for one in found if isinstance(one, ast.stmt) and one.lineno == row.line]
        calls = [one for stmt in own for one in ast.walk(stmt) if isinstance(one, ast.Call)]
        found += calls if len(calls) == 1 else []
    found.sort(key=_size)
    return [*found, tree]


def _size(node: ast.AST) -> tuple[int, int]:
    assert isinstance(node, (ast.expr, ast.stmt))
    lines = (node.end_lineno or node.lineno) - node.lineno
    return lines, (node.end_col_offset or 0) - node.col_offset


def _of_python(tree: ast.Module, call: ast.Call) -> str | None:
    """Return whether it is `gc.collect()`, under whatever name it was imported."""
    func = call.func
    if isinstance(func, ast.Attribute) and func.attr == "collect":
        return COLLECTS if isinstance(func.value, ast.Name) and func.value.id == "gc" else None
    imports = (one for one in ast.walk(tree) if isinstance(one, ast.ImportFrom))
    names = {
        (one.asname or one.name)
        for node in imports
        if node.module == "gc"
        for one in node.names
        if one.name == "collect"
    }
    return COLLECTS if isinstance(func, ast.Name) and func.id in names else None


def _is_list_of_torch(call: ast.Call, scope: ast.AST) -> bool:
    """Return whether a tensor is made of what is certainly a list of the script's."""
    func = call.func
    is_torch = isinstance(func, ast.Name) or (
        isinstance(func, ast.Attribute)
        and isinstance(func.value, ast.Name)
        and func.value.id == "torch"
    )
    if not (is_torch and last_name(func) in _MAKERS and call.args):
        return False
    first = call.args[0]
    if isinstance(first, ast.Name):
        first = next(iter(_values_of(first.id, scope)), first)
    is_made = isinstance(first, ast.Call) and last_name(first.func) == "list"
    return is_made or isinstance(first, _LISTS)


def _values_of(name: str, scope: ast.AST) -> Iterator[ast.expr]:
    """Yield what a name is given in a function by plain assignments."""
    for node in ast.walk(scope):
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target = node.targets[0]
            if isinstance(target, ast.Name) and target.id == name:
                yield node.value


def _goes_through_weights(scope: ast.AST, inside: list[ast.AST]) -> bool:
    """Return whether it is in a loop over a model's tensors, or makes what one goes through."""
    loops = [one for one in ast.walk(scope) if isinstance(one, _LOOPS) and _is_over(one, scope)]
    if not loops or any(_trains(loop) for loop in loops):
        return False
    makes = any(isinstance(one, ast.Call) and _names_weights(one) for one in inside)
    return makes or any(loop in inside for loop in loops)


def _is_over(loop: ast.AST, scope: ast.AST) -> bool:
    """Return whether a loop goes through parameters or entries of a state dict."""
    heads = [loop.iter] if isinstance(loop, ast.For) else []
    heads += [one.iter for one in getattr(loop, "generators", ())]
    names = [node.id for head in heads for node in ast.walk(head) if isinstance(node, ast.Name)]
    heads += [value for name in names for value in _values_of(name, scope)]
    return any(_names_weights(node) for head in heads for node in ast.walk(head))


def _names_weights(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in _OF_WEIGHTS
    )


def _trains(loop: ast.AST) -> bool:
    """Return whether a backward pass is in a loop."""
    calls = (node for node in ast.walk(loop) if isinstance(node, ast.Call))
    return any(last_name(call.func) in ("backward", "grad") for call in calls)
