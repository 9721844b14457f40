"""Finds a softmax over masked scores in a loss's graph: a row that is masked whole is NaN there.

Its gradients are NaN, even where the loss leaves that row out. Only names of nodes are read, once,
when an update has broken weights. Source: https://github.com/pytorch/pytorch/issues/41508.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

MAX_NODES = 20_000
MAX_BETWEEN = 6
"""Nodes between a mask and its softmax: scales, views, casts."""

MASKS = ("MaskedFillBackward0", "MaskedFillBackward1", "WhereBackward0")
ADDS = ("AddBackward0", "BaddbmmBackward0")
"""They mask where one of two operands needs no gradient: that one holds the infinities."""

PASSED = {
    f"{name}Backward{number}"
    for name in ("View", "UnsafeView", "Reshape", "Transpose", "Permute", "ToCopy", "Mul", "Div")
    for number in (0, 1)
}


def masked_softmax(root: Any, names: Mapping[int, str]) -> str | None:
    """Return the path of the module nearest to a softmax over masked scores; None without one."""
    for node in _nodes_from(root):
        if node.name() == "SoftmaxBackward0" and _is_masked(_before(node)):
            return _module_near(node, names)
    return None


def _before(node: Any) -> Any:
    return next((one for one, _ in node.next_functions if one is not None), None)


def _is_masked(node: Any) -> bool:
    for _ in range(MAX_BETWEEN):
        name = "" if node is None else node.name()
        if name in MASKS:
            return True
        if name in ADDS:
            return node.next_functions[0][0] is None or node.next_functions[1][0] is None
        if name not in PASSED:
            return False
        node = _before(node)
    return False


def _module_near(node: Any, names: Mapping[int, str]) -> str | None:
    leaves = (getattr(one, "variable", None) for one in _nodes_from(node))
    name = next((names[id(leaf)] for leaf in leaves if id(leaf) in names), None)
    return None if name is None else name.rpartition(".")[0] or name


def _nodes_from(root: Any) -> Iterator[Any]:
    """Yield the nodes of a graph, the nearest first."""
    waiting, seen = [root], {root}
    for node in waiting:
        yield node
        inner = [one for one, _ in node.next_functions if one is not None and one not in seen]
        if len(seen) < MAX_NODES:
            seen.update(inner)
            waiting += dict.fromkeys(inner)


TAKE_TENSORS = (masked_softmax, _module_near)
"""Functions whose frames hold tensors (`hooks/patching.py` says why that matters)."""
