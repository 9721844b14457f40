"""Sets gradients and their hooks aside, and puts them back.

An optimizer may hang at a hook, which would step, or a reduction over ranks.
"""

from __future__ import annotations

from typing import Any


class KeptGradients:
    """The gradients of leaves, which have none meanwhile."""

    def __init__(self) -> None:
        self.leaves: dict[int, tuple[Any, Any, dict[Any, Any]]] = {}

    def set_aside(self, tensors: list[Any]) -> None:
        """Set aside the gradients of leaves that are not known yet."""
        for one in tensors:
            if id(one) in self.leaves or not one.is_leaf:
                continue
            hooks = getattr(one, "_post_accumulate_grad_hooks", None)
            self.leaves[id(one)] = (one, one.grad, dict(hooks or {}))
            if one.grad is not None:
                one.grad = None
            if hooks:  # emptied, for torch's own node holds this very dictionary
                hooks.clear()

    def put_back(self) -> None:
        """Give every leaf the gradient that it had, None if it had none, and its hooks."""
        for one, gradient, hooks in self.leaves.values():
            if one.grad is not gradient:
                one.grad = gradient
            now = getattr(one, "_post_accumulate_grad_hooks", None)
            if now is not None and now != hooks:
                now.clear()
                now.update(hooks)
