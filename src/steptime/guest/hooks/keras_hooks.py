"""Updates of Keras on torch: its optimizers are no optimizers of torch's, and no hook sees them.

Keras changes the weights in `_backend_update_step` of its optimizers' base class, once for each
update also where it accumulates gradients. On other backends that method runs while a program is
traced, so nothing is hooked there.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from ..frameworks.torch.torch_context import TorchContext
from .patching import drop_frame, replace

MODULES = (
    ("keras.src.optimizers.base_optimizer", "BaseOptimizer"),
    ("keras.src.backend.torch.optimizers.torch_parallel_optimizer", "TorchParallelOptimizer"),
)
"""The classes that define the method, by their modules."""

UPDATE = "_backend_update_step"


def hook_keras(context: TorchContext, targets: dict[str, Callable[[Any], None]]) -> None:
    """Hook Keras once it is imported, or now."""
    for name, owner in MODULES:
        act = functools.partial(context.guarded, "keras", hook_updates, context, owner)
        module = sys.modules.get(name)
        if module is None:
            targets.setdefault(name, act)
        else:
            act(module)


def hook_updates(context: TorchContext, owner_name: str, module: Any) -> None:
    """Let an update of Keras's be the step of an optimizer."""
    owner = getattr(module, owner_name, None)
    original = getattr(owner, "__dict__", {}).get(UPDATE)
    if callable(original):
        replace(owner, UPDATE, make_update(context, original))


def make_update(context: TorchContext, original: Any) -> Any:
    """Return a method that notes one update around the original."""
    is_compiling = context.torch.compiler.is_dynamo_compiling
    local, guarded = context.local, context.guarded

    def update(self: Any, *args: Any, **kwargs: Any) -> Any:
        if is_compiling() or context.is_worker or not is_on_torch():
            return original(self, *args, **kwargs)
        try:
            journal = local.journal
            guarded("keras", functools.partial(journal.enter_optimizer, has_closure=False))
            try:
                result = original(self, *args, **kwargs)
            except BaseException:
                guarded("keras", journal.drop_optimizers)
                raise
            guarded("keras", end_update, context, journal, self)
            return result
        except BaseException as error:
            drop_frame(error)
            raise

    return update


def end_update(context: TorchContext, journal: Any, optimizer: Any) -> None:
    """End the update that began with the call of the method."""
    journal.leave_optimizer(optimizer, 0)
    if not journal.optimizers:
        context.end_update()


def is_on_torch() -> bool:
    """Return whether Keras computes with torch in this process."""
    keras = sys.modules.get("keras.src.backend.config") or sys.modules.get("keras.src.backend")
    backend = getattr(keras, "backend", None)
    return callable(backend) and backend() == "torch"
