"""Walks autograd's graph: its leaves, whether parts of it are older, what follows from what."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def nodes_behind(roots: list[Any]) -> Iterator[Any]:
    """Yield each node once that a backward from these tensors runs through."""
    pending, seen = [root.grad_fn for root in roots], set()
    while pending:
        node = pending.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        yield node
        pending += [following for following, _ in node.next_functions]


def leaves_and_age(roots: list[Any], first: int) -> tuple[list[Any], bool]:
    """Return the leaves that get gradients, and whether a node is older than number `first`.

    The graph of such a node is somebody else's, who may still want to go backward through it.
    """
    leaves, is_old = [], False
    for node in nodes_behind(roots):
        if hasattr(node, "variable"):
            leaves.append(node.variable)
        elif node._sequence_nr() < first:
            is_old = True
    return leaves, is_old


def covers(root: Any, others: list[Any]) -> bool:
    """Return whether `root` was computed from all the others."""
    behind = set(nodes_behind([root]))
    leaves = {id(node.variable) for node in behind if hasattr(node, "variable")}
    return all(one.grad_fn in behind if one.grad_fn else id(one) in leaves for one in others)
