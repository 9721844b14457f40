"""Looks for attention that a model writes out in single operators, in its first calls of a trial.

The lever `fused_attention` looks in the same way, so what it says is what it would find. The look
follows torch's functions under a function mode and changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from ...count.operators.operator_probe import is_compiling_at_all
from ..trial_plan import lever_tool

MAX_CALLS = 4
"""Calls of models that are looked into."""


class AttentionLook:
    """What was found so far; `fail` counts a failure of ours by place."""

    def __init__(self, torch: Any, fail: Callable[[str], None]) -> None:
        self.torch = torch
        self.fail = fail
        self.num_calls = 0
        self.owners: set[str] = set()
        self.reasons: Counter[str] = Counter()

    def run(self, call: Callable[[], Any]) -> Any:
        """Make a call of a model, and look into it if it is one of the first."""
        finder = None
        try:
            if self.num_calls < MAX_CALLS and not is_compiling_at_all():
                finder = self._make()
        except BaseException:
            self.fail("attention")
        if finder is None:
            return call()
        with finder:
            result = call()
        if finder.has_failed:
            self.fail("attention")
        self.owners |= {one.__name__ for one in finder.trace.owners - finder.trace.users}
        self.reasons += finder.trace.reasons
        return result

    def describe(self) -> dict[str, Any]:
        """Return `plain_attention` and `kept_attention` of levers/base.py."""
        if not self.num_calls:
            return {}
        reasons = [word for word, _ in self.reasons.most_common()]
        return {"plain_attention": sorted(self.owners), "kept_attention": reasons}

    def _make(self) -> Any:
        self.num_calls += 1
        module = lever_tool("kernels/attention_finder")
        return module.make_finder(self.torch, module.Fuser(self.torch))
