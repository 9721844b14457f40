"""What autograd keeps for the backward: in the graph of a loss, and in every other graph alive.

In: tensors with a graph. Out: the storages that the graphs keep, booked as `activations` or
`logits`. A generator's graph is alive while its discriminator is trained, and so is a second
forward that has not gone backward. `holdings.py` walks a graph.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..timeline.interrupts import let_through
from .holdings import StorageLedger, saved_in_graph

OF_LOSS = ("LogSoftmax", "NllLoss", "CrossEntropy", "LinearCrossEntropy")
"""What these nodes keep is as large as the logits, and often is the logits."""

MAX_ROOTS = 100_000
"""Tensors whose graphs are walked."""

ACTIVATIONS, LOGITS = "activations", "logits"


Kept = list[tuple[Any, str, int]]
"""Graph nodes, the part to which what they keep belongs, and the bytes that no other node keeps."""


def take_kept(ledger: StorageLedger, roots: Iterable[Any]) -> Kept:
    """Book what the graphs of these tensors keep."""
    found = []
    for node, tensor in saved_in_graph(ledger.torch, roots):
        part = LOGITS if type(node).__name__.startswith(OF_LOSS) else ACTIVATIONS
        found.append((node, part, ledger.take(part, [tensor])))
    return found


def with_graph(tensors: Iterable[Any]) -> list[Any]:
    """Return the tensors that have a graph behind them."""
    return [one for one in tensors if has_graph(one)][:MAX_ROOTS]


def has_graph(tensor: Any) -> bool:
    """Return whether a tensor has a graph; one that refuses to say has none."""
    try:
        return tensor.grad_fn is not None
    except BaseException as error:  # a view changed in place, a subclass of the user's
        let_through(error)
        return False
