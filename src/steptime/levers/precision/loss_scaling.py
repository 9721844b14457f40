"""Loss scaling for scripts that have none: part of the lever autocast, for fp16.

Small gradients vanish in fp16, so the loss is multiplied before each backward and the gradients are
divided right after it: clipping, accumulation and logging see the true gradients. Scales are powers
of two, so nothing is rounded. An update whose gradients are not finite is skipped.

Source: Micikevicius et al., Mixed Precision Training (2018); torch.amp.GradScaler's numbers.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from ..base import Session, Undo
from ..tools.optimizer_layout import parameters_of

FIRST_SCALE, GROWTH, BACKOFF, GROWTH_INTERVAL = 2.0**16, 2.0, 0.5, 2000

CHECK_EVERY, NUM_CHECKS = 100, 3
"""The graph is searched for leaves that no model and no optimizer has, in the first three backward
calls of each hundred, and in all calls once one was found: it takes a microsecond for each node."""


def scale_losses(session: Session) -> Undo:
    """Scale each loss before its backward, and scale the gradients back after it."""
    scaling = LossScaling(session.torch, session.count)
    undos = (
        session.for_each_model(lambda model: scaling.learn(model.parameters())),
        session.for_each_optimizer(lambda optimizer: scaling.learn(parameters_of(optimizer))),
        session.wrap_backward(scaling.backward),
        session.before_update(scaling.before_update),
    )

    def undo() -> None:
        for take_back in undos:
            take_back()

    return undo


class LossScaling:
    """The scale, and the gradients that must not be used."""

    def __init__(self, torch: Any, count: Callable[[str], None]) -> None:
        self.torch = torch
        self.count = count
        self.scale = FIRST_SCALE
        self.num_good_updates = self.num_backwards = 0
        self.has_strangers = False
        self.known: dict[int, weakref.ref[Any]] = {}
        self.overflowed: set[int] = set()

    def learn(self, parameters: Iterable[Any]) -> None:
        """Remember what will get gradients."""
        self.known.update((id(one), weakref.ref(one)) for one in parameters)

    def backward(self, call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Run a backward call of `Tensor.backward` or `autograd.backward` on a scaled loss."""
        torch = self.torch
        is_named = not args
        roots = kwargs.get("tensors") if is_named else args[0]
        is_single = isinstance(roots, torch.Tensor)
        tensors = [roots] if is_single else list(roots or ())
        makes_graph = kwargs.get("create_graph") or (len(args) > 3 and args[3])
        if makes_graph or not all(isinstance(one, torch.Tensor) for one in tensors):
            return call(*args, **kwargs)  # gradients that are part of a graph stay as they are
        leaves = self.leaves_of(tensors)
        self.overflowed -= {id(leaf) for leaf in leaves if leaf.grad is None}
        # Gradients accumulated before are scaled as well, so that all can be divided alike.
        self.multiply(leaves, self.scale)
        with torch.enable_grad():
            scaled = [one * self.scale for one in tensors]
        root = scaled[0] if is_single else scaled
        try:
            if is_named:
                return call(**{**kwargs, "tensors": root})
            return call(root, *args[1:], **kwargs)
        finally:
            if not self.multiply(leaves, 1.0 / self.scale):
                self.overflowed |= {id(leaf) for leaf in leaves if not is_finite(leaf.grad)}

    def leaves_of(self, tensors: list[Any]) -> list[Any]:
        """Return everything to which a backward from the tensors may give a gradient."""
        alive = (ref() for ref in self.known.values())
        found = {id(one): one for one in alive if one is not None and one.requires_grad}
        if self.has_strangers or self.num_backwards % CHECK_EVERY < NUM_CHECKS:
            strangers = [leaf for leaf in search_graph(tensors) if id(leaf) not in found]
            self.has_strangers = self.has_strangers or bool(strangers)
            found.update((id(leaf), leaf) for leaf in strangers)
        self.num_backwards += 1
        return list(found.values())

    def multiply(self, leaves: list[Any], factor: float) -> bool:
        """Multiply the gradients in place; return whether all were finite."""
        torch = self.torch
        groups: dict[Any, list[Any]] = {}
        for leaf in leaves:
            if (grad := leaf.grad) is not None:
                dense = grad._values() if grad.is_sparse else grad
                groups.setdefault((dense.device, dense.dtype), []).append(dense.detach())
        are_finite = True
        for (device, _), grads in groups.items():
            found = torch.zeros(1, device=device)
            by = torch.full((1,), factor, device=device)
            torch._amp_foreach_non_finite_check_and_unscale_(grads, found, by)
            are_finite = are_finite and not found.item()
        return are_finite

    def before_update(self, optimizer: Any) -> None:
        """Remove the gradients of an update that must not happen, and adjust the scale."""
        parameters = parameters_of(optimizer)
        if any(id(one) in self.overflowed for one in parameters):
            for one in parameters:
                one.grad = None
            self.overflowed -= {id(one) for one in parameters}
            self.num_good_updates = 0
            self.scale *= BACKOFF
            self.count("skipped_update")
            return
        self.num_good_updates += 1
        if self.num_good_updates % GROWTH_INTERVAL == 0 and math.isfinite(self.scale * GROWTH):
            self.scale *= GROWTH


def is_finite(grad: Any) -> bool:
    """Return whether a gradient, if any, can be used."""
    if grad is None:
        return True
    return bool((grad._values() if grad.is_sparse else grad).isfinite().all())


def search_graph(tensors: list[Any]) -> list[Any]:
    """Return the leaves that a backward from the tensors reaches."""
    leaves = [one for one in tensors if one.grad_fn is None and one.requires_grad]
    pending = [one.grad_fn for one in tensors if one.grad_fn is not None]
    seen = set(pending)
    while pending:
        node = pending.pop()
        if hasattr(node, "variable"):
            leaves.append(node.variable)
        fresh = {after for after, _ in node.next_functions if after is not None} - seen
        seen |= fresh
        pending += fresh
    return leaves
