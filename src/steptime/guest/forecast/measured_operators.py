"""Runs each different operator once, for real and alone, to see what it takes and what it returns.

In: operators on fakes. Out: the bytes that each takes for itself, and results with the sizes of the
real ones. Arguments are made of zeros of the same shapes, so only what depends on shapes is seen;
no more than one operator's tensors exist at a time.
"""

from __future__ import annotations

from typing import Any

from ..count.tensor_facts import is_view, tensors_in
from ..memory.workspaces import Workspaces
from .corrections import Workspace
from .fake_mode import Fakes

MIN_BYTES = 4096
"""Operators on less than this are not run: what they take is nothing next to a step."""


class MeasuredOperators:
    """What operators take and return, each of them run once.

    Args:
        fakes: makes fakes.
    """

    def __init__(self, fakes: Fakes) -> None:
        self.fakes = fakes
        self.torch = fakes.torch
        self.workspaces = Workspaces(fakes.torch)
        self.workspaces.expect(0)
        self.known: dict[Any, tuple[Workspace | None, Any] | None] = {}

    def workspace(self, func: Any, args: Any, kwargs: Any) -> Workspace | None:
        """Return what an operator takes for itself; None where it takes nothing or did not run."""
        found = self._find(func, args, kwargs)
        return None if found is None else found[0]

    def corrected(self, func: Any, args: Any, kwargs: Any, result: Any) -> Any:
        """Return the result of a fake kernel, with other sizes where the real ones differ."""
        found = self._find(func, args, kwargs)
        if found is None or not isinstance(result, (tuple, list)):
            return result
        told = [
            one
            if spec is None or not self.fakes.is_fake(one) or spec == _spec(one)
            # Its layout stays the fake's: in which order real elements lie is not kept.
            else self.fakes.empty(spec[0], one, spec[1])
            for one, spec in zip(result, found[1])
        ]
        return type(result)(told) if type(result) in (tuple, list) else tuple(told)

    def run(self, func: Any, args: Any, kwargs: Any, *, keeps_numbers: bool = False) -> Any:
        """Run an operator; return fakes of what it returns, but for whole numbers if wanted."""
        real = func(*self._real(args), **self._real(kwargs))
        kept = (self.torch.int64,) if keeps_numbers else ()
        fake = self.fakes.empty
        return self._map(real, lambda one: one if one.dtype in kept else fake(one.shape, one))

    def _find(self, func: Any, args: Any, kwargs: Any) -> tuple[Workspace | None, Any] | None:
        tensors = [*tensors_in(list(args)), *tensors_in(list(kwargs.values()))]
        if not self._is_measured(func, tensors):
            return None
        key = (func, _key(args), _key(sorted(kwargs.items())))
        if key not in self.known:
            self.known[key] = self._measure(func, args, kwargs)
        return self.known[key]

    def _is_measured(self, func: Any, tensors: list[Any]) -> bool:
        if self.torch.Tag.nondeterministic_seeded in func.tags or is_view(func):
            return False  # the script's random numbers stay what they are
        return (
            any(self.fakes.is_fake(one) for one in tensors)
            and all(one.device.type == "cpu" for one in tensors)
            and sum(one.numel() * one.element_size() for one in tensors) >= MIN_BYTES
        )

    def _measure(self, func: Any, args: Any, kwargs: Any) -> tuple[Workspace | None, Any] | None:
        try:
            given, named = self._real(args), self._real(kwargs)
            if not self.workspaces.begin(func, given):
                return None
            try:
                result = func(*given, **named)
            finally:
                self.workspaces.end()
        except (RuntimeError, IndexError, ValueError):
            return None  # zeros are no arguments for it
        taken = self.workspaces.taken
        specs = [_spec(one) for one in result] if isinstance(result, (tuple, list)) else None
        found = Workspace(low=taken, estimate=taken, high=taken) if taken else None
        return found, specs or ()

    def _real(self, value: Any) -> Any:
        return self._map(value, self._zeros)

    def _zeros(self, tensor: Any) -> Any:
        if not self.fakes.is_fake(tensor):
            return tensor.clone()
        size = 1 + sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride()))
        base = self.torch.zeros(max(0, size) if tensor.numel() else 0, dtype=tensor.dtype)
        return base.as_strided(tensor.shape, tensor.stride())

    def _map(self, value: Any, act: Any) -> Any:
        if isinstance(value, self.torch.Tensor):
            return act(value)
        if isinstance(value, dict):
            return {name: self._map(one, act) for name, one in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)([self._map(one, act) for one in value])
        return value


def _spec(value: Any) -> Any:
    return (tuple(value.shape), value.dtype) if hasattr(value, "untyped_storage") else None


def _key(value: Any) -> Any:
    if hasattr(value, "untyped_storage"):
        return tuple(value.shape), tuple(value.stride()), value.dtype
    if isinstance(value, (list, tuple)):
        return tuple(_key(one) for one in value)
    return repr(value)
