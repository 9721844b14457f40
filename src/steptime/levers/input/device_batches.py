"""Which loaders feed a device, and how their batches are pinned; two levers share this."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..base import Facts, Session, Undo


def why_no_copies(facts: Facts) -> str | None:
    """Return why no batch of a loader is copied to a device, as a sentence."""
    if facts.device != "cuda":
        return f"It is not known that batches go to a CUDA device: training is on {facts.device}."
    if facts.loaders is not None and not facts.loaders:
        return "No DataLoader fed the training."
    return None


def pin_as_read(session: Session, receive: Callable[[Any, Any], Any]) -> Undo:
    """Pin the batches of each loader that is iterated with gradients on.

    `receive(loader, iterator)` returns what the script iterates over instead.
    """
    torch = session.torch
    loader_class = torch.utils.data.DataLoader
    iterate = loader_class.__iter__

    @functools.wraps(iterate)
    def iterate_pinned(self: Any) -> Any:
        if not torch.is_grad_enabled():
            return iterate(self)
        if not self.pin_memory and self._iterator is None:
            vars(self)["pin_memory"] = True
        return receive(self, iterate(self))

    loader_class.__iter__ = iterate_pinned

    def undo() -> None:
        if loader_class.__iter__ is iterate_pinned:
            loader_class.__iter__ = iterate

    return undo
