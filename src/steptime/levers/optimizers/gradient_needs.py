"""Which gradients of a backward call no update uses, found by watching. This is no lever.

Where a script has several optimizers, a backward call often reaches weights whose gradients are
dropped before their optimizer steps: those of a discriminator in the generator's turn, of a critic
in the actor's. What a line of the script dropped each time is not computed there any more.
"""

from __future__ import annotations

import os
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

WATCHED, MOST_WATCHED = 4, 32
"""Times that a line's gradient of a weight has to be dropped before it is left out there, and
calls of a line after which it is watched no more."""

OURS = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MAX_NODES = 100_000

Key = tuple[int, int]
"""A gradient as it is: its identity and its version."""


class BackwardPlace:
    """A line of the script that calls backward: by weight, how often its gradient was dropped."""

    def __init__(self) -> None:
        self.used: set[int] = set()
        self.dropped: Counter[int] = Counter()
        self.num_calls = 0
        self.is_whole = False  # all of its gradients are needed, for all that is known

    def left_out(self) -> set[int]:
        """Return the weights whose gradients are not needed here."""
        if self.is_whole or self.num_calls <= WATCHED:
            return set()
        return {one for one, num in self.dropped.items() if num >= WATCHED} - self.used


class GradientNeeds:
    """Watches backward calls and updates, and leaves out gradients that are always dropped."""

    def __init__(self, torch: Any) -> None:
        self.torch, self.grad = torch, torch._C.TensorBase.grad
        self.folders = (OURS, os.path.dirname(torch.__file__))
        self.optimizers: list[weakref.ref[Any]] = []
        self.places: dict[tuple[str, int], BackwardPlace] = {}
        self.known: dict[int, weakref.ref[Any]] = {}  # the weights that the places mean
        self.begin()

    def begin(self) -> None:
        """Forget what is under way, as what happened since was not watched."""
        self.owed: dict[int, set[tuple[str, int]]] = {}  # by weight: who gave its gradient
        self.missing: dict[int, Key] = {}  # what was there when a weight was left out

    def adopt(self, optimizer: Any) -> None:
        """Take an optimizer whose weights are watched."""
        self.optimizers = [one for one in self.optimizers if one() not in (None, optimizer)]
        self.optimizers.append(weakref.ref(optimizer))

    def weights(self) -> dict[int, Any]:
        """Return the weights of all optimizers, by their identity."""
        alive = [one() for one in self.optimizers]
        groups = [group for one in alive if one is not None for group in one.param_groups]
        found = {id(one): one for group in groups for one in group["params"] if one.requires_grad}
        for one, weight in found.items():
            known = self.known.get(one)
            if known is None or known() is not weight:
                self.forget(one)  # what was known is of another, which is gone
                self.known[one] = weakref.ref(weight)
        return found

    def forget(self, weight: int) -> None:
        """Forget what is known of the weight that had an identity."""
        self.owed.pop(weight, None)
        self.missing.pop(weight, None)
        for place in self.places.values():
            place.used.discard(weight)
            place.dropped.pop(weight, None)

    def key_of(self, weight: Any) -> Key | None:
        """Return a weight's gradient as it is; None where there is none."""
        grad = None if weight is None else self.grad.__get__(weight)
        return None if grad is None else (id(grad), grad._version)

    def run_backward(self, call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Make a backward call, without the gradients that its line has always dropped."""
        if len(args) > 2 or kwargs.get("inputs") or kwargs.get("create_graph"):
            return call(*args, **kwargs)
        weights, here = self.weights(), self.place_of_caller()
        self.settle(weights)
        place = self.places.setdefault(here, BackwardPlace())
        place.num_calls += 1
        if 1 < place.num_calls <= WATCHED:  # in the first turn some optimizers are not known yet
            place.is_whole = place.is_whole or not self.reaches_weights_alone(args[0], weights)
        # One without a gradient is needed for all that is known: nothing would show that the
        # script drops it.
        out = {one: self.key_of(weights.get(one)) for one in place.left_out()}
        missing = {one: key for one, key in out.items() if key is not None}
        if missing:
            self.missing |= missing
            kwargs = {**kwargs, "inputs": [it for one, it in weights.items() if one not in missing]}
        if place.num_calls > MOST_WATCHED:
            return call(*args, **kwargs)
        before = {one: self.key_of(weight) for one, weight in weights.items()}
        result = call(*args, **kwargs)
        for one, weight in weights.items():
            if self.key_of(weight) != before[one]:
                self.owed.setdefault(one, set()).add(here)
        return result

    def settle(self, weights: dict[int, Any]) -> None:
        """Note which gradients were dropped since the last backward call."""
        for one in [one for one in self.owed if self.key_of(weights.get(one)) is None]:
            for here in self.owed.pop(one):
                self.places[here].dropped[one] += 1
        for one, key in list(self.missing.items()):
            if self.key_of(weights.get(one)) != key:
                del self.missing[one]

    def before_update(self, optimizer: Any) -> None:
        """Note whose gradients are used.

        Raises:
            RuntimeError: a gradient that was left out is wanted.
        """
        for group in optimizer.param_groups:
            for one in group["params"]:
                if id(one) in self.missing and self.key_of(one) == self.missing[id(one)]:
                    raise RuntimeError("an update uses a gradient that was always dropped before")
                for here in self.owed.pop(id(one), ()):
                    self.places[here].used.add(id(one))

    def place_of_caller(self) -> tuple[str, int]:
        """Return the line of the script from which a backward call comes."""
        frame = sys._getframe(1)
        while frame.f_back is not None and frame.f_code.co_filename.startswith(self.folders):
            frame = frame.f_back
        return frame.f_code.co_filename, frame.f_lineno

    def reaches_weights_alone(self, loss: Any, weights: dict[int, Any]) -> bool:
        """Return whether all tensors that a loss gives gradients to are the optimizers' weights."""
        leaves = list(leaves_of(loss)) if isinstance(loss, self.torch.Tensor) else [None]
        return all(
            one is not None and id(one) in weights and not one._backward_hooks for one in leaves
        )


def leaves_of(loss: Any) -> Iterator[Any]:
    """Yield the leaves of a tensor's graph; None where there are too many nodes."""
    seen, waiting = set[Any](), [loss.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if len(seen) > MAX_NODES:
            yield None
            return
        if hasattr(node, "variable"):
            yield node.variable
        waiting += [one for one, _ in node.next_functions]
