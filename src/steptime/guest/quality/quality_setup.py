"""Turns this process into a recorded one: seeds, determinism, hooks, and the last line.

In: the plan's `quality`. Out: nothing; from here on the hooks tell the watcher what happens.
"""

from __future__ import annotations

import atexit
import sys
from collections.abc import Callable, Mapping
from typing import Any

from ..frameworks.torch.torch_context import TorchContext
from ..trial.trial_plan import lever_tool
from .quality_hooks import (
    hook_backward,
    hook_calls,
    hook_compile,
    hook_loaders,
    hook_optimizers,
    hook_scaler,
)
from .quality_watcher import QualityWatcher, Settings
from .variants import own_seed, seed_numpy, set_determinism, set_seeds

HOOKS = (hook_calls, hook_backward, hook_optimizers, hook_scaler, hook_loaders, hook_compile)

REORDERED_BATCHES = 16
"""Batches among which samples change places at random, as with `length_grouping`."""


def install(
    context: TorchContext, plan: Mapping[str, Any], targets: dict[str, Callable[[Any], None]]
) -> None:
    """Seed this process and record it. Must be called last, after all levers are in place."""
    torch, settings = context.torch, Settings(plan)
    if settings.seed is not None:
        seed = own_seed(settings.seed)
        set_seeds(torch, seed)
        if "numpy" not in sys.modules:
            targets["numpy"] = lambda numpy: seed_numpy(numpy, seed)
    if settings.reorder is not None:
        own = lever_tool("lengths/grouping")
        own.reorder_rows(torch, REORDERED_BATCHES, seed=settings.reorder)
    if settings.is_deterministic:
        set_determinism(torch)
    watcher = QualityWatcher(context, settings)
    for hook in HOOKS:
        context.guarded(f"quality:{hook.__name__}", hook, watcher)
    if watcher.double is not None:
        context.guarded("quality:double", watcher.double.install)
    atexit.register(watcher.guarded, watcher.end)
