"""What levers need to know about a script whose step is forecast, as far as fakes show it.

In: the models and optimizers of the forecast, and its operators. Out: fields of `Facts` in
levers/base.py. A trial sees more, but one that runs out of memory may end before it has seen them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ..trial.lever_facts import FactsBook
from ..trial.lever_session import Registry
from ..trial.lever_stack import LeverStack


class ScriptFacts:
    """Gathers the facts of one process; no lever is ever on.

    Args:
        torch: the module.
        fail: counts a failure of ours by place.
    """

    def __init__(self, torch: Any, fail: Callable[[str], None]) -> None:
        self.torch = torch
        registry = Registry(torch, lambda owner, error: None, is_lenient=True)
        self.book = FactsBook(torch, LeverStack(registry), fail)
        self.draws = False

    def hook(self) -> None:
        """Note whether the script enters autocast, and whether it fills gradients with zeros."""
        self.book.hook_autocast()
        self.book.habits.hook_zeroing()

    def see_operator(self, func: Any) -> None:
        """Note an operator of the followed step: one that draws random numbers says so."""
        if self.torch.Tag.nondeterministic_seeded in getattr(func, "tags", ()):
            self.draws = True

    def describe(self, models: Iterable[Any], optimizers: Iterable[Any]) -> dict[str, Any]:
        """Return the facts; what failed is left out."""
        book = self.book
        return book.describe(list(models), list(optimizers)) | {
            "uses_autocast": book.uses_autocast,
            "zeroes_gradients": book.habits.zeroes_gradients,
            "draws_in_calls": self.draws,
        }
