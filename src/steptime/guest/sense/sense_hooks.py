"""Hooks that only the sense checks need: schedulers that step, and models that leave training."""

from __future__ import annotations

import sys
from typing import Any

from ..frameworks.torch.torch_context import TorchContext
from ..hooks.callers_place import from_callers_place
from ..hooks.patching import drop_frame, replace


def hook_sense(context: TorchContext) -> None:
    """Patch `LRScheduler.step` and `Module.eval` on their classes."""
    torch, sense = context.torch, context.sense
    scheduler_class = torch.optim.lr_scheduler.LRScheduler
    _replace(context, scheduler_class, "step", sense.see_scheduler)
    _replace(context, torch.nn.Module, "eval", sense.see_eval)


def _replace(context: TorchContext, owner: Any, name: str, see: Any) -> None:
    """Let a method tell who calls it for whom, and from which frame."""
    original, guarded = getattr(owner, name), context.guarded
    is_compiling = context.torch.compiler.is_dynamo_compiling

    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return original(self, *args, **kwargs)
        frame = sys._getframe(1)
        guarded("sense", see, self, frame)
        try:
            return from_callers_place(frame, original, self, *args, **kwargs)
        except BaseException as error:
            drop_frame(error)
            raise

    replace(owner, name, wrapper)
