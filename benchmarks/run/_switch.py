"""Takes the guest's hooks out of this process and puts them back, for paired comparison."""

from __future__ import annotations

import gc
import sys
from typing import Any, Literal


class Switch:
    """All hooks of the guest that runs in this process, on or off."""

    def __init__(self) -> None:
        import torch.optim.optimizer as optimizer

        self.patches: list[Any] = sys.modules["_steptime.guest.hooks.patching"].PATCHES
        self.registries = (
            optimizer._global_optimizer_pre_hooks,
            optimizer._global_optimizer_post_hooks,
        )
        self.hooks = [dict(registry) for registry in self.registries]
        self.callbacks = [c for c in gc.callbacks if c.__module__.startswith("_steptime.guest")]
        self.ours = [(owner, name, owner.__dict__[name]) for owner, name, _, _ in self.patches]

    def turn(self, state: Literal["on", "off"]) -> None:
        """Hooks in place, or as if they had never been."""
        on = state == "on"
        if on:
            for owner, name, ours in self.ours:
                setattr(owner, name, ours)
        else:
            for owner, name, before, _ in self.patches:
                if before is not None:
                    setattr(owner, name, before)
                elif name in owner.__dict__:
                    delattr(owner, name)
        gc.callbacks[:] = [c for c in gc.callbacks if c not in self.callbacks]
        if on:
            gc.callbacks.extend(self.callbacks)
        for registry, hooks in zip(self.registries, self.hooks, strict=True):
            registry.clear()
            if on:
                registry.update(hooks)
