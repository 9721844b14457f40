"""Takes the guest's hooks out of this process and puts them back, for paired comparison."""

from __future__ import annotations

import gc
import sys
from time import perf_counter_ns
from typing import Any, Literal


class Switch:
    """All hooks of the guest that runs in this process, on or off.

    A guest that rests between bursts has taken some away itself: they come back as they were, and
    the time without hooks is no part of its rest.
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
        self.off_ns = 0
        stacks = sys.modules["_steptime.guest.spent.stack_sampler"]
        self.samplers = [act.__self__ for act in stacks.BEFORE_FORK]

    def turn(self, state: Literal["on", "off"]) -> None:
        """Hooks in place, or as if they had never been."""
        if state == self.state:
            return
        self.state = state
        if state == "off":
            self._take_out()
            self.off_ns = perf_counter_ns()
            return
        gone_ns = perf_counter_ns() - self.off_ns
        cells = [cell for hook in self.hooks[1].values() for cell in hook.__closure__ or ()]
        for watch in {id(c): c for c in (cell.cell_contents for cell in cells)}.values():
            if type(watch) is list and len(watch) == 1:
                watch[0] += gone_ns
            elif hasattr(watch, "__self__") and hasattr(watch.__self__, "wake_ns"):
                for name in ("wake_ns", "zero_ns", "last_ns"):
                    setattr(watch.__self__, name, getattr(watch.__self__, name) + gone_ns)
        for owner, name, ours in self.gone:
            setattr(owner, name, ours)
        gc.callbacks.extend(self.callbacks)
        for sampler in self.samplers:
            sampler.is_off = False
            if sampler.journal is not None:
                sampler._start()
        for registry, hooks in zip(self.registries, self.hooks, strict=True):
            registry.update(hooks)

    def _take_out(self) -> None:
        self.gone = []
        for sampler in self.samplers:
            sampler.stop()
            sampler.is_off = True
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
