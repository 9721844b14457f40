"""A `Session` for tests of levers: torch is patched for a while, and then restored.

It is simpler than the session in a user's process, with the same promises: wrappers sit around
outermost calls of models with gradients, around outermost backward calls and before optimizer
steps.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from importlib import import_module
from typing import Any

from steptime.levers.base import Undo


class PlainSession:
    """What `Lever.apply` takes; use it in a `with` statement.

    `counts` holds what levers counted.
    """

    is_trial = False

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.counts: Counter[str] = Counter()
        self._calls: list[Any] = []
        self._plain_calls: list[Any] = []
        self._backwards: list[Any] = []
        self._updates: list[Any] = []
        self._models = SeenObjects()
        self._optimizers = SeenObjects()
        self._depths: Counter[str] = Counter()
        self._patches = ExitStack()

    def __enter__(self) -> PlainSession:
        torch = self.torch
        self._patch(torch.nn.Module, "__call__", self._make_call)
        self._patch(torch.Tensor, "backward", self._make_backward)
        self._patch(torch.autograd, "backward", self._make_backward)
        optimizers = import_module("torch.optim.optimizer")
        handle = optimizers.register_optimizer_step_pre_hook(self._begin_step)
        self._patches.callback(handle.remove)
        return self

    def __exit__(self, *_: object) -> None:
        self._patches.close()

    def wrap_calls(self, wrapper: Callable[..., Any]) -> Undo:
        """Put `wrapper(call, model, args, kwargs)` around outermost calls with gradients."""
        return put(self._calls, wrapper)

    def wrap_plain_calls(self, wrapper: Callable[..., Any]) -> Undo:
        """Put `wrapper(call, module, args, kwargs)` around outermost calls without gradients."""
        return put(self._plain_calls, wrapper)

    def wrap_backward(self, wrapper: Callable[..., Any]) -> Undo:
        """Put `wrapper(call, args, kwargs)` around each outermost backward call."""
        return put(self._backwards, wrapper)

    def before_update(self, act: Callable[[Any], None]) -> Undo:
        """Call `act(optimizer)` before each optimizer step."""
        return put(self._updates, act)

    def for_each_model(self, act: Callable[[Any], None]) -> Undo:
        """Call `act(model)` for each model, before its first outermost call with gradients."""
        return self._models.for_each(act)

    def for_each_optimizer(self, act: Callable[[Any], None]) -> Undo:
        """Call `act(optimizer)` for each optimizer, before its first step."""
        return self._optimizers.for_each(act)

    def count(self, what: str) -> None:
        """Add one to `counts[what]`."""
        self.counts[what] += 1

    def _patch(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        original = getattr(owner, name)
        self._patches.callback(setattr, owner, name, original)
        setattr(owner, name, make(original))

    def _make_call(self, original: Any) -> Any:
        torch = self.torch

        def call(module: Any, *args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling():  # first: dynamo guards whatever else is asked
                return original(module, *args, **kwargs)
            if self._depths["call"] or self._depths["backward"]:
                return original(module, *args, **kwargs)
            if next(module.parameters(), None) is None:
                return original(module, *args, **kwargs)
            is_plain = not torch.is_grad_enabled()
            if not is_plain:
                self._models.meet(module)
            nested = original
            for wrapper in reversed(self._plain_calls if is_plain else self._calls):
                nested = around_call(wrapper, nested)
            return self._inside("call", nested, module, *args, **kwargs)

        return call

    def _make_backward(self, original: Any) -> Any:
        def backward(*args: Any, **kwargs: Any) -> Any:
            if self._depths["backward"]:
                return original(*args, **kwargs)
            nested = original
            for wrapper in reversed(self._backwards):
                nested = around_backward(wrapper, nested)
            return self._inside("backward", nested, *args, **kwargs)

        return backward

    def _begin_step(self, optimizer: Any, *_: Any) -> None:
        self._optimizers.meet(optimizer)
        for act in list(self._updates):
            act(optimizer)

    def _inside(self, place: str, act: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._depths[place] += 1
        try:
            return act(*args, **kwargs)
        finally:
            self._depths[place] -= 1


class SeenObjects:
    """Holds objects that were seen, by weak references, and what to do with each."""

    def __init__(self) -> None:
        self.references: list[weakref.ref[Any]] = []
        self.acts: list[Callable[[Any], None]] = []

    def alive(self) -> Iterable[Any]:
        """Return the objects that are still alive."""
        found = [reference() for reference in self.references]
        return [one for one in found if one is not None]

    def meet(self, one: Any) -> None:
        """Take an object that was seen; act on it the first time."""
        if not any(known is one for known in self.alive()):
            self.references.append(weakref.ref(one))
            for act in list(self.acts):
                act(one)

    def for_each(self, act: Callable[[Any], None]) -> Undo:
        """Act on every object that was seen, and on each one to come."""
        undo = put(self.acts, act)
        for one in self.alive():
            act(one)
        return undo


def put(place: list[Any], what: Any) -> Undo:
    """Add to a list; return what undoes it."""
    place.append(what)
    return lambda: place.remove(what)


def around_call(wrapper: Any, call: Any) -> Any:
    """Return a call of a model inside a wrapper."""
    return lambda model, *args, **kwargs: wrapper(call, model, args, kwargs)


def around_backward(wrapper: Any, call: Any) -> Any:
    """Return a backward call inside a wrapper."""
    return lambda *args, **kwargs: wrapper(call, args, kwargs)
