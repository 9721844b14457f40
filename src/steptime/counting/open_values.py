"""Finds the tensors in what a model takes and returns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

MAX_DEPTH = 8


def tensors_in(torch: Any, value: Any) -> list[Any]:
    """Return the tensors in it once each: collections, data classes and objects are opened."""
    return [one for one in opened(torch, value) if isinstance(one, torch.Tensor)]


def opened(torch: Any, value: Any) -> list[Any]:
    """Return it and all that is in it, once each, in order."""
    seen: dict[int, Any] = {}
    pending = [(value, MAX_DEPTH)]
    while pending:
        one, depth = pending.pop()
        if id(one) in seen:
            continue
        seen[id(one)] = one
        if depth and not isinstance(one, torch.Tensor):
            pending += [(part, depth - 1) for part in reversed(list(_parts(torch, one)))]
    return list(seen.values())


def _parts(torch: Any, value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        yield from value.values()
    elif isinstance(value, (list, tuple, set, frozenset)):
        yield from value
    elif has_attributes(torch, value):
        yield from value.__dict__.values()
    elif not isinstance(value, type):
        slots = getattr(type(value), "__dataclass_fields__", ())
        yield from (getattr(value, name, None) for name in slots)


def has_attributes(torch: Any, value: Any) -> bool:
    """Return whether it is an object that only holds something: no module, no function."""
    if isinstance(value, (type, torch.nn.Module, torch.Tensor)) or callable(value):
        return False
    return isinstance(getattr(value, "__dict__", None), dict)


def with_own_history(torch: Any, value: Any) -> Any:
    """Return it with copies of the tensors that were computed: gradients end there.

    Else the backward would run through what came before the model, too, and free its graph. Lists,
    tuples and dictionaries are opened; `graph.py` takes care of what is elsewhere.
    """
    copies: dict[int, Any] = {}  # a model may ask whether two of its inputs are the same

    def copied(one: Any) -> Any:
        if isinstance(one, torch.Tensor):
            if one.grad_fn is None or not torch.is_grad_enabled():
                return one
            if id(one) not in copies:  # a copy, because a leaf could not be changed in place
                copies[id(one)] = one.detach().requires_grad_().clone()
            return copies[id(one)]
        if type(one) in (list, tuple) or hasattr(type(one), "_make"):
            return getattr(type(one), "_make", type(one))([copied(each) for each in one])
        if type(one) is dict:
            return {name: copied(each) for name, each in one.items()}
        return one

    return copied(value)
