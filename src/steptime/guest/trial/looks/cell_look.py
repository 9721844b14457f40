"""Looks for recurrent cells that a module steps in a loop, in the first calls of models in a trial.

The lever `fused_rnn` looks in the same way, so what it says is what it would find. For these calls
classes note how their steps are called; the steps are made as they are written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...count.operators.operator_probe import is_compiling_at_all
from ..trial_plan import lever_tool

MAX_CALLS = 4
"""Calls of models that are looked into."""


class CellLook:
    """What was found so far; `fail` counts a failure of ours by place."""

    def __init__(self, torch: Any, fail: Callable[[str], None]) -> None:
        self.torch = torch
        self.fail = fail
        self.num_calls = 0
        self.classes: set[str] = set()

    def run(self, model: Any, call: Callable[[], Any]) -> Any:
        """Make a call of a model, and look into it if it is one of the first."""
        look = None
        try:
            if self.num_calls < MAX_CALLS and not is_compiling_at_all():
                look = self._make()
        except BaseException:
            self.fail("cells")
        if look is None:
            return call()
        result = look.run(model, call)
        try:
            found = [type(one).__name__ for cells in look.found().values() for one in cells]
            self.classes.update(found)
        except BaseException:
            self.fail("cells")
        return result

    def describe(self) -> dict[str, Any]:
        """Return `stepped_cells` of levers/base.py."""
        return {"stepped_cells": sorted(self.classes)} if self.num_calls else {}

    def _make(self) -> Any:
        self.num_calls += 1
        finder = lever_tool("kernels/cell_finder")
        return finder.LoopLook(finder.CellFuser(self.torch))
