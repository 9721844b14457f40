"""Finds modules that step an LSTMCell or a GRUCell of torch's in a loop.

The first call of a model is made as it is written; during it the two classes note who steps them.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

from ..tools.owners import put_forward
from .attention_finder import owner_of
from .cell_runs import MIN_STEPS, CellFuser


class LoopLook:
    """Makes one call of a model, and sees which modules step cells in a loop."""

    def __init__(self, fuser: CellFuser) -> None:
        self.fuser = fuser
        self.num_steps: Counter[tuple[type, int]] = Counter()
        self.cells: dict[int, Any] = {}

    def run(self, model: Any, call: Callable[[], Any]) -> Any:
        """Make the call as it is written; return its result."""
        put_back = [self._watch(one, forward) for one, (_, forward) in self.fuser.own.items()]
        try:
            return call()
        finally:
            for undo in put_back:
                undo()

    def _watch(self, cell_class: Any, written: Callable[..., Any]) -> Callable[[], None]:
        torch = self.fuser.torch

        def forward(cell: Any, *args: Any, **kwargs: Any) -> Any:
            owner = owner_of(sys._getframe(1), torch.nn.Module)
            is_known = type(cell) is cell_class and not torch.compiler.is_compiling()
            if owner is not None and is_known:
                self.num_steps[owner, id(cell)] += 1
                self.cells[id(cell)] = cell
            return written(cell, *args, **kwargs)

        return put_forward(cell_class, forward)

    def found(self) -> dict[type, list[Any]]:
        """Return the classes that step cells in a loop, each with those cells."""
        found: dict[type, list[Any]] = {}
        for (owner, at), num in self.num_steps.items():
            if num >= MIN_STEPS:
                found.setdefault(owner, []).append(self.cells[at])
        return found


def find_loops(fuser: CellFuser, model: Any, call: Callable[[], Any]) -> tuple[Any, set[type]]:
    """Make a call as it is written; return its result and the classes that step cells in loops."""
    look = LoopLook(fuser)
    return look.run(model, call), set(look.found())
