"""When a model goes to evaluation and comes back, as its script says by `eval` and `train`.

This is no lever, as it has no `LEVER`. Like the levers, it imports only the standard library.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

from ..base import Session, Undo


class Evaluations:
    """Calls `enter(module)` when a model goes to evaluation, and `leave(module)` after it.

    `holds` says whether a module is a whole model: a script freezes parts by `eval` too. A model
    that is called with gradients before `train()` leaves early, and never enters again: its script
    trains in evaluation mode.
    """

    def __init__(
        self,
        session: Session,
        *,
        holds: Callable[[Any], bool],
        enter: Callable[[Any], None],
        leave: Callable[[Any], None],
    ) -> None:
        self._session = session
        self._holds, self._enter, self._leave = holds, enter, leave
        self._inside: weakref.WeakSet[Any] = weakref.WeakSet()
        self._kept_out: weakref.WeakSet[Any] = weakref.WeakSet()

    def watch(self) -> Undo:
        """Begin; return what ends it, with every model back."""
        undos = (
            self._session.wrap_calls(self._call_model),
            self._session.wrap_backward(self._call_backward),
            watch_modes(self._session.torch, self._on_mode),
        )

        def undo() -> None:
            self.leave_all()
            for take_back in undos:
                take_back()

        return undo

    def leave_all(self, *, is_early: bool = False) -> None:
        """Let every model leave its evaluation."""
        for module in list(self._inside):
            self._leave(module)
            self._inside.discard(module)
            if is_early:
                self._kept_out.add(module)
                self._session.count("called_with_gradients_in_evaluation")

    def _on_mode(self, module: Any, is_training: bool) -> None:  # noqa: FBT001 - as torch has it
        if is_training:
            self.leave_all()
        elif not self._inside and module not in self._kept_out and self._holds(module):
            self._enter(module)
            self._inside.add(module)
            self._session.count("entered_evaluation")

    def _call_model(self, call: Any, model: Any, args: Any, kwargs: Any) -> Any:
        self.leave_all(is_early=True)
        return call(model, *args, **kwargs)

    def _call_backward(self, call: Any, args: Any, kwargs: Any) -> Any:
        self.leave_all(is_early=True)
        return call(*args, **kwargs)


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
