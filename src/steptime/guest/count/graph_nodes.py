"""What nodes of autograd's graph say of where a tensor came from, and where a gradient goes.

In: graph nodes and tensors. Out: nodes, and parameters; nothing is changed. `completeness.py` asks.
"""

from __future__ import annotations

import re
from typing import Any

MAX_CHAIN = 64
"""Views and copies between a product and its matrix; more are not followed."""

NATIVE = re.compile(r"\w+Backward\d+")
"""Graph nodes of torch's own operators."""

THROUGH = re.compile(
    r"(T|Transpose|Permute|View|UnsafeView|ReshapeAlias|Expand|Squeeze|Unsqueeze|Select|Slice|Split"
    r"|SplitWithSizes|Unbind|AsStrided|Alias|ToCopy|Clone|Cat|Stack|Chunk|Narrow|Unfold)Backward\d+"
)
"""Nodes of views and copies: below them lies what a product really met."""


def is_native(node: Any) -> bool:
    """Return whether a graph node is one of torch's own operators."""
    return NATIVE.fullmatch(type(node).__name__) is not None


def leaves_below(node: Any) -> list[Any]:
    """Return the leaves that a node's results go to, through nothing but views and copies."""
    found, pending = [], list(node.next_functions)
    for _ in range(MAX_CHAIN):
        if not pending:
            break
        below, place = pending.pop()
        if type(below).__name__ == "AccumulateGrad":
            found.append(below.variable)
        elif below is not None and THROUGH.fullmatch(type(below).__name__):
            pending += below.next_functions
        elif below is not None and is_broadcast(below):
            pending.append(below.next_functions[place % len(below.next_functions)])
    return found


def is_torchs(node: Any) -> bool:
    """Return whether a graph node of a Python function belongs to torch itself."""
    return str(node._forward_cls.__module__).startswith("torch.")


def is_broadcast(node: Any) -> bool:
    """Return whether a node copies parameters to several devices, as `DataParallel` does."""
    return (
        type(node).__name__ == "BroadcastBackward"
        and hasattr(node, "_forward_cls")
        and is_torchs(node)
    )


def originals_of(tensor: Any) -> tuple[list[Any], bool]:
    """Return the parameters that a tensor is a copy of, and whether it lies on another device."""
    node = None if tensor.is_leaf else node_of(tensor)
    if node is None:
        return [], False
    if is_broadcast(node):
        below, _ = node.next_functions[tensor.output_nr % len(node.next_functions)]
        return [below.variable] if hasattr(below, "variable") else [], True
    return leaves_below(node) if THROUGH.fullmatch(type(node).__name__) else [], False


def node_of(tensor: Any) -> Any:
    """Return the graph node that made a tensor; None where torch cannot tell."""
    try:
        return tensor.grad_fn
    except RuntimeError:  # a view of what was changed in place
        return None


def own_function_of(tensor: Any) -> Any:
    """Return the node of the script's own function that a tensor comes from through views alone.

    The node of a view may only be made when it is asked for; that of its base is always there.
    """
    node = node_of(tensor if tensor._base is None else tensor._base)
    for _ in range(MAX_CHAIN):
        if node is None:
            return None
        if hasattr(node, "_forward_cls"):
            return None if is_torchs(node) else node
        if "CppNode" in node.name():
            return node
        if len(node.next_functions) != 1 or not THROUGH.fullmatch(type(node).__name__):
            return None
        node = node.next_functions[0][0]
    return None
