"""Finds the tensors in what a model takes and returns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

MAX_DEPTH = 8


def tensors_in(torch: Any, value: Any) -> list[Any]:
    """Return the tensors in it once each: collections, data classes and objects are opened."""
    found: list[Any] = []
    seen: dict[int, Any] = {}  # kept alive, because Python reuses the id of what is gone
    pending = [(value, MAX_DEPTH)]
    while pending:
        one, depth = pending.pop()
        if id(one) in seen:
            continue
        seen[id(one)] = one
        if isinstance(one, torch.Tensor):
            found.append(one)
        elif depth:
            pending += [(part, depth - 1) for part in reversed(list(_parts(torch, one)))]
    return found


def _parts(torch: Any, value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        yield from value.values()
    elif isinstance(value, (list, tuple, set, frozenset)):
        yield from value
    elif not isinstance(value, (type, torch.nn.Module)) and not callable(value):
        slots = getattr(type(value), "__dataclass_fields__", ())
        yield from (getattr(value, name, None) for name in slots)
        yield from getattr(value, "__dict__", {}).values()


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
            if (
                id(one) not in copies
            ):  # a leaf could not be changed in place, so it is a copy of one
                copies[id(one)] = one.detach().requires_grad_().clone()
            return copies[id(one)]
        if type(one) in (list, tuple):
            return type(one)(map(copied, one))
        if type(one) is dict:
            return {name: copied(each) for name, each in one.items()}
        return one

    return copied(value)
