"""Takes the guest's hooks out of this process and puts them back, for paired comparison."""

from __future__ import annotations

import gc
import sys
from typing import Any, Literal


class Switch:
    """All hooks of the guest that runs in this process, on or off.

    A guest that rests between bursts has taken some away itself: they come back as they were.
    """

    def __init__(self) -> None:
        import torch.optim.optimizer as optimizer

        self.patches: list[Any] = sys.modules["_steptime.guest.hooks.patching"].PATCHES
        self.registries = (
            optimizer._global_optimizer_pre_hooks,
            optimizer._global_optimizer_post_hooks,
        )
        self.gone: list[Any] = []
        self.hooks: list[dict[Any, Any]] = [{}, {}]
        self.callbacks: list[Any] = []
        self.state = "on"

    def turn(self, state: Literal["on", "off"]) -> None:
        """Hooks in place, or as if they had never been."""
        if state == self.state:
            return
        self.state = state
        if state == "off":
            self._take_out()
            return
        for owner, name, ours in self.gone:
            setattr(owner, name, ours)
        gc.callbacks.extend(self.callbacks)
        for registry, hooks in zip(self.registries, self.hooks, strict=True):
            registry.update(hooks)

    def _take_out(self) -> None:
        self.gone = []
        for owner, name, before, ours in self.patches:
            if owner.__dict__.get(name) is not ours:
                continue
            self.gone.append((owner, name, ours))
            if before is not None:
                setattr(owner, name, before)
            else:
                delattr(owner, name)
        self.callbacks = [c for c in gc.callbacks if c.__module__.startswith("_steptime.guest")]
        gc.callbacks[:] = [c for c in gc.callbacks if c not in self.callbacks]
        self.hooks = [dict(registry) for registry in self.registries]
        for registry in self.registries:
            registry.clear()
