"""Tells when a model goes to evaluation and comes back, as its script says by `eval` and `train`.

This is no lever, as it has no `LEVER`. Like the levers, it imports only the standard library.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .base import Undo


def watch_modes(torch: Any, act: Callable[[Any, bool], None]) -> Undo:
    """Call `act(module, is_training)` after each outermost `train` or `eval` of a module."""
    kind = torch.nn.Module
    original = kind.train
    depth = 0

    @functools.wraps(original)
    def train(self: Any, mode: bool = True) -> Any:  # noqa: FBT001, FBT002 - as torch has it
        nonlocal depth
        depth += 1
        try:
            result = original(self, mode)
        finally:
            depth -= 1
        if not depth:
            act(self, mode)
        return result

    kind.train = train

    def undo() -> None:
        if kind.train is train:
            kind.train = original

    return undo
