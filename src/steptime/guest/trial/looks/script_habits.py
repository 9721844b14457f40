"""What the script does that levers can take back: zeros in gradients, checkpoints of activations.

In a trial only. What one checkpointed call keeps for its backward is counted once, in the first
such call, which keeps it for that time. Numbers are read, never changed.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any

from ...hooks.patching import put, replace


class ScriptHabits:
    """Notes them while the script trains.

    Args:
        torch: the module.
        is_open: whether what happens now is the script's own doing.
    """

    def __init__(self, torch: Any, is_open: Callable[[], bool]) -> None:
        self.torch = torch
        self.is_open = is_open
        self.zeroes_gradients = False
        self.ways: set[str] = set()
        self.num_calls = 0
        self.kept_bytes: int | None = None  # by the first checkpointed call
        self.is_hooked = False

    def hook(self) -> None:
        """Note how gradients are zeroed and how activations are checkpointed."""
        self.is_hooked = True
        self.hook_zeroing()
        module = importlib.import_module("torch.utils.checkpoint")
        self._hook_generator(module)
        self._hook_reentrant(module)

    def hook_zeroing(self) -> None:
        """Note how gradients are zeroed."""
        for owner in (self.torch.optim.Optimizer, self.torch.nn.Module):
            self._hook_zeroing(owner)

    def _hook_zeroing(self, owner: Any) -> None:
        original = owner.zero_grad

        def zero_grad(holder: Any, set_to_none: Any = True) -> Any:  # noqa: FBT002 - as torch has it
            if not set_to_none and self.is_open():
                self.zeroes_gradients = True
            return original(holder, set_to_none)

        replace(owner, "zero_grad", zero_grad)

    def _hook_generator(self, module: Any) -> None:
        original = module._checkpoint_without_reentrant_generator

        def generate(function: Any, preserve: Any, *args: Any, **kwargs: Any) -> Any:
            inner = original(function, preserve, *args, **kwargs)
            return self._keep_once(inner) if self.see_call("not_reentrant", preserve) else inner

        replace(module, "_checkpoint_without_reentrant_generator", generate)

    def _keep_once(self, inner: Iterator[None]) -> Iterator[None]:
        """Let this one call keep what it needs, and count that."""
        next(inner)
        try:
            with self.counting():
                yield
        except BaseException as error:
            inner.throw(error)  # type: ignore[attr-defined]
            raise
        yield from inner

    def _hook_reentrant(self, module: Any) -> None:
        owner = module.CheckpointFunction
        original = owner.apply

        def apply(function: Any, preserve: Any, *args: Any) -> Any:
            if self.see_call("reentrant", preserve):
                function = self._counted(function)
            return original(function, preserve, *args)

        put(owner, "apply", staticmethod(apply))

    def _counted(self, function: Any) -> Any:
        def counted(*args: Any) -> Any:
            if not self.torch.is_grad_enabled() or self.kept_bytes:
                return function(*args)
            with self.counting():  # the second time, in the backward
                return function(*args)

        return counted

    def see_call(self, way: str, preserve: Any) -> bool:
        """Note a checkpointed call with gradients; return whether it is the first one."""
        if not (self.is_open() and self.torch.is_grad_enabled()):
            return False
        self.num_calls += 1
        self.ways.add(way if preserve else "unpreserved")
        return self.num_calls == 1

    def counting(self) -> Any:
        """Return a context in which what a graph keeps is counted, without parameters."""
        seen: set[int] = set()
        self.kept_bytes = 0

        def pack(tensor: Any) -> Any:
            storage = tensor.untyped_storage()
            owner = tensor if tensor._base is None else tensor._base
            is_parameter = isinstance(owner, self.torch.nn.Parameter)
            if not is_parameter and storage.data_ptr() not in seen:
                seen.add(storage.data_ptr())
                self.kept_bytes = (self.kept_bytes or 0) + storage.nbytes()
            return tensor

        return self.torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)

    def describe(self, num_updates: int) -> dict[str, Any]:
        """Return the fields of `Facts`, without those that were not observed."""
        if not self.is_hooked:
            return {}
        found: dict[str, Any] = {
            "zeroes_gradients": self.zeroes_gradients,
            "checkpoint_ways": sorted(self.ways),
        }
        if self.kept_bytes and num_updates:
            found["checkpointed_bytes"] = round(self.kept_bytes * self.num_calls / num_updates)
        return found
