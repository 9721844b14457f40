"""An optimizer's own step for one weight at a time, inside the backward. This is no lever.

Hooks are on the weights for the time of a backward call, so nothing of ours is in a checkpoint.
"""

from __future__ import annotations

import inspect
import threading
import weakref
from collections.abc import Callable
from typing import Any

from ..tools.optimizer_layout import lay_out_gradients, parameters_of

BY_WEIGHT = (
    *("ASGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop"),
    *("Rprop", "SGD"),
)
"""Torch's optimizers whose update of a weight needs its own gradient and states alone."""


class EarlySteps:
    """Updates weights inside backward calls; between them nothing of it is on any object."""

    def __init__(self, torch: Any, count: Callable[[str], None]) -> None:
        self.torch = torch
        self.count = count
        self.optimizer: weakref.ref[Any] | None = None
        self.groups: dict[int, dict[str, Any]] = {}
        self.rates: list[Any] | None = None  # with which weights were updated in this step
        self.lock = threading.Lock()  # a device's gradients come in a thread of their own

    def adopt(self, optimizer: Any) -> None:
        """Take the optimizer, if its step is torch's own and has no hooks of the script's."""
        kind = type(optimizer)
        is_torchs = kind.__module__.startswith("torch.optim.") and kind.__name__ in BY_WEIGHT
        hooks = (optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks)
        if not is_torchs or any(hooks) or optimizer.defaults.get("differentiable"):
            self.count("left_alone")
            return
        self.optimizer = weakref.ref(optimizer)

    def run_backward(self, call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Make a backward call that updates the weights whose gradients become complete."""
        optimizer = None if self.optimizer is None else self.optimizer()
        others = {name for name, value in kwargs.items() if value and name != "gradient"}
        if optimizer is None or others or len(args) > 2:
            return call(*args, **kwargs)  # a graph that is kept, or gradients of some inputs only
        if self.rates is not None:
            raise RuntimeError("an update has a second backward after its weights were updated")
        self.groups = {id(p): group for group in optimizer.param_groups for p in group["params"]}
        weights = parameters_of(optimizer)
        if any(one.requires_grad and one.grad is not None for one in weights):
            return call(*args, **kwargs)  # something is there to which gradients are added
        handles = [
            one.register_post_accumulate_grad_hook(self.update)
            for one in weights
            if one.requires_grad
        ]
        self.rates = rates_of(optimizer)
        try:
            return call(*args, **kwargs)
        finally:
            for handle in handles:
                handle.remove()

    def update(self, weight: Any) -> None:
        """Let the optimizer update one weight, and free its gradient."""
        optimizer = None if self.optimizer is None else self.optimizer()
        if optimizer is None or weight.grad is None:
            return
        group = self.groups[id(weight)]
        with self.lock, self.torch.no_grad():
            if group.get("fused"):
                lay_out_gradients(self.torch, [weight])
            groups = optimizer.param_groups
            optimizer.param_groups = [{**group, "params": [weight]}]
            try:
                inspect.unwrap(type(optimizer).step)(optimizer)
            finally:
                optimizer.param_groups = groups
        weight.grad = None

    def end(self, optimizer: Any) -> None:
        """Take the script's own step: the weights have been updated with the same rates."""
        rates, self.rates = self.rates, None
        if rates is not None and rates != rates_of(optimizer):
            raise RuntimeError("the script changed a learning rate after the backward")


def rates_of(optimizer: Any) -> list[Any]:
    """Return what the groups hold besides weights; numbers in tensors as numbers."""
    held = [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups]
    return [{k: v.item() if hasattr(v, "item") else v for k, v in one.items()} for one in held]
