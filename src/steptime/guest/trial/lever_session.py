"""What a lever finds in the user's process: places to register a callback and to remove it.

The hooks that are in place anyway call these places (`guest/trial/lever_guest.py`), so nothing is
attached to an object of the user's. The callbacks of a place are an immutable tuple that is
replaced as a whole: a call continues with the callbacks that were there when it began.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any

from .trial_plan import Wanted

Undo = Callable[[], None]

MAX_MODELS = 1000
"""Beyond this, models that are gone are forgotten: some scripts make modules in each step."""


class Owner:
    """A lever that is or was on: the owner of callbacks."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.undo: Undo | None = None
        self.is_off = False


class Hung:
    """A lever's callback at a place."""

    __slots__ = ("act", "owner")

    def __init__(self, act: Callable[..., Any], owner: Owner) -> None:
        self.act = act
        self.owner = owner


class Inner:
    """The call that a wrapper continues with, and its result or error."""

    __slots__ = ("call", "error", "is_done", "result")

    def __init__(self, call: Callable[..., Any]) -> None:
        self.call = call
        self.error: BaseException | None = None
        self.is_done = False
        self.result: Any = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Make the call."""
        try:
            self.result = self.call(*args, **kwargs)
        except BaseException as error:
            self.error = error
            raise
        self.is_done = True
        return self.result


class Known:
    """Objects that were seen, in order, with weak references."""

    def __init__(self) -> None:
        self.references: dict[int, weakref.ref[Any]] = {}

    def __contains__(self, one: Any) -> bool:
        known = self.references.get(id(one))
        return known is not None and known() is one

    def meet(self, one: Any) -> bool:
        """Return whether this one is new."""
        if one in self:
            return False
        if len(self.references) > MAX_MODELS:
            self.references = {k: r for k, r in self.references.items() if r() is not None}
        self.references.pop(id(one), None)  # an id that is used again goes to the end
        self.references[id(one)] = weakref.ref(one)
        return True

    def alive(self) -> list[Any]:
        """Return those that still exist."""
        found = [reference() for reference in list(self.references.values())]
        return [one for one in found if one is not None]


class Registry:
    """The callbacks of levers in this process, and the models and optimizers seen so far.

    Args:
        torch: the module.
        give_up: called when a lever failed; in a trial it does not return, and under a recipe it
            takes the lever off.
        is_lenient: whether the training must continue.
    """

    def __init__(
        self, torch: Any, give_up: Callable[[Owner, BaseException], None], *, is_lenient: bool
    ) -> None:
        self.torch = torch
        self.give_up = give_up
        self.is_lenient = is_lenient
        self.calls: tuple[Hung, ...] = ()
        self.plain_calls: tuple[Hung, ...] = ()
        self.backwards: tuple[Hung, ...] = ()
        self.updates: tuple[Hung, ...] = ()
        self.on_models: tuple[Hung, ...] = ()
        self.on_optimizers: tuple[Hung, ...] = ()
        self.models = Known()
        self.optimizers = Known()
        self.failing = Known()  # models that also raise without levers
        self.counts: Counter[str] = Counter()  # by the lever's name and the count's

    # -- callbacks

    def hang(self, place: str, act: Callable[..., Any], owner: Owner) -> Undo:
        """Register `act` at a place, inside what is there already; return what removes it."""
        hung = Hung(act, owner)
        setattr(self, place, (*getattr(self, place), hung))

        def undo() -> None:
            setattr(self, place, tuple(h for h in getattr(self, place) if h is not hung))

        return undo

    def take_down(self, owner: Owner) -> None:
        """Remove all callbacks of a lever."""
        for place in ("calls", "plain_calls", "backwards", "updates", "on_models", "on_optimizers"):
            setattr(self, place, tuple(h for h in getattr(self, place) if h.owner is not owner))

    # -- what the hooks report

    def meet_model(self, model: Any) -> None:
        """Note a model that is about to be called outermost, with gradients."""
        if self.models.meet(model):
            self._call_all(self.on_models, model)

    def meet_optimizer(self, optimizer: Any) -> None:
        """Note an optimizer that is about to step."""
        if self.optimizers.meet(optimizer):
            self._call_all(self.on_optimizers, optimizer)

    def begin_update(self, optimizer: Any) -> None:
        """Begin an outermost step, once the gradients are there."""
        self._call_all(self.updates, optimizer)

    def closing(self, optimizer: Any, closure: Callable[[], Any]) -> Callable[[], Any]:
        """Return a closure that also begins the update: it makes gradients inside the step."""

        def closed() -> Any:
            loss = closure()
            self.begin_update(optimizer)
            return loss

        return closed

    def _call_all(self, hung: tuple[Hung, ...], one: Any) -> None:
        for each in hung:
            try:
                each.act(one)
            except Exception as error:
                self.give_up(each.owner, error)

    def run_call(self, call: Callable[..., Any], model: Any, args: Any, kwargs: Any) -> Any:
        """Run the outermost call of a model inside the levers' wrappers."""
        self.meet_model(model)
        wrappers = self.calls
        if not wrappers:
            return call(model, *args, **kwargs)
        nested = call
        for hung in reversed(wrappers):
            nested = self._around_call(hung, nested)
        if not self.is_lenient:
            return nested(model, *args, **kwargs)
        try:
            return nested(model, *args, **kwargs)
        except (RuntimeError, TypeError) as error:
            if any(one is model for one in self.failing.alive()):
                raise
            failed = error
        return self._call_again(failed, wrappers, call, model, args, kwargs)

    def run_plain(self, call: Callable[..., Any], module: Any, args: Any, kwargs: Any) -> Any:
        """Run an outermost call without gradients inside the levers' wrappers."""
        for hung in reversed(self.plain_calls):
            call = self._around_call(hung, call)
        return call(module, *args, **kwargs)

    def _call_again(
        self,
        failed: BaseException,
        wrappers: tuple[Hung, ...],
        call: Callable[..., Any],
        model: Any,
        args: Any,
        kwargs: Any,
    ) -> Any:
        """Call a model that raised under levers again without them, so the training continues."""
        self.failing.meet(model)
        result = call(model, *args, **kwargs)
        for hung in wrappers:
            self.give_up(hung.owner, failed)
        return result

    def _around_call(self, hung: Hung, call: Callable[..., Any]) -> Callable[..., Any]:
        def around(model: Any, *args: Any, **kwargs: Any) -> Any:
            inner = Inner(call)
            try:
                return hung.act(inner, model, args, kwargs)
            except Exception as error:
                if error is inner.error:
                    raise
                self.give_up(hung.owner, error)
            return inner.result if inner.is_done else call(model, *args, **kwargs)

        return around

    def run_backward(self, call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Run an outermost backward call inside the levers' wrappers."""
        for hung in reversed(self.backwards):
            call = self._around_backward(hung, call)
        return call(*args, **kwargs)

    def _around_backward(self, hung: Hung, call: Callable[..., Any]) -> Callable[..., Any]:
        def around(*args: Any, **kwargs: Any) -> Any:
            inner = Inner(call)
            try:
                return hung.act(inner, args, kwargs)
            except Exception as error:
                if error is inner.error:
                    raise
                self.give_up(hung.owner, error)
            return inner.result if inner.is_done else call(*args, **kwargs)

        return around


class LeverSession:
    """The process as one lever sees it: the `LeverSession` of levers/base.py."""

    def __init__(self, registry: Registry, owner: Owner) -> None:
        self.torch = registry.torch
        self.is_trial = not registry.is_lenient
        self._registry = registry
        self._owner = owner

    def wrap_calls(self, wrapper: Callable[..., Any]) -> Undo:
        """Put `wrapper(call, model, args, kwargs)` around outermost calls with gradients."""
        return self._registry.hang("calls", wrapper, self._owner)

    def wrap_plain_calls(self, wrapper: Callable[..., Any]) -> Undo:
        """Put `wrapper(call, module, args, kwargs)` around outermost calls without gradients."""
        return self._registry.hang("plain_calls", wrapper, self._owner)

    def wrap_backward(self, wrapper: Callable[..., Any]) -> Undo:
        """Put `wrapper(call, args, kwargs)` around each outermost backward call."""
        return self._registry.hang("backwards", wrapper, self._owner)

    def before_update(self, act: Callable[[Any], None]) -> Undo:
        """Call `act(optimizer)` before each outermost optimizer step."""
        return self._registry.hang("updates", act, self._owner)

    def for_each_model(self, act: Callable[[Any], None]) -> Undo:
        """Call `act(model)` for each model so far, and for others before their first call."""
        undo = self._registry.hang("on_models", act, self._owner)
        for model in self._registry.models.alive():
            act(model)
        return undo

    def for_each_optimizer(self, act: Callable[[Any], None]) -> Undo:
        """Call `act(optimizer)` for each one so far, and for others before their first step."""
        undo = self._registry.hang("on_optimizers", act, self._owner)
        for optimizer in self._registry.optimizers.alive():
            act(optimizer)
        return undo

    def count(self, what: str) -> None:
        """Count something that a reader must know about."""
        self._registry.counts[f"{self._owner.wanted.name}:{what}"] += 1
