"""The modules and parameters of a model, read without a method of the user's.

A model's class may have an `__eq__` and no `__hash__`, a `named_modules` or `parameters` of its own
that raises, or a `__getattribute__` that refuses. Torch keeps what a module holds in two
dictionaries of the instance; modules are told apart by their identity.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

REGISTERED = ("_modules", "_parameters")

MAX_HELD = 64
"""Members of a list that are looked at: a module may hold a whole data set in one."""


def held_by(module: Any, name: str) -> list[tuple[str, Any]]:
    """Return the items of one of torch's dictionaries of a module: `_modules`, `_parameters`."""
    held = object.__getattribute__(module, "__dict__").get(name)
    return [] if held is None else [(key, one) for key, one in held.items() if one is not None]


def modules_of(root: Any) -> Iterator[tuple[str, Any]]:
    """Yield each module of a model once, with its path, the model itself first."""
    seen: set[int] = set()
    waiting: list[tuple[str, Any]] = [("", root)]
    while waiting:
        path, module = waiting.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        yield path, module
        inner = held_by(module, "_modules")
        waiting += [(f"{path}.{name}" if path else name, one) for name, one in reversed(inner)]


def parameters_of(root: Any) -> Iterator[tuple[str, Any]]:
    """Yield each parameter of a model once, with its path."""
    seen: set[int] = set()
    for path, module in modules_of(root):
        for name, weight in held_by(module, "_parameters"):
            if id(weight) not in seen:
                seen.add(id(weight))
                yield f"{path}.{name}" if path else name, weight


def loose_parameters_of(torch: Any, root: Any) -> Iterator[tuple[str, str, Any]]:
    """Yield the parameters in plain lists, tuples and dictionaries of a model's modules.

    Torch does not register them: `parameters()` has none of them. Each has its holder, such as
    `Net.layers`, and its name; one that is registered somewhere else may be among them.
    """
    for path, module in modules_of(root):
        for name, held in list(object.__getattribute__(module, "__dict__").items()):
            if name in REGISTERED or type(held) not in (list, tuple, dict):
                continue
            holder, path_to = f"{type(module).__name__}.{name}", f"{path}.{name}" if path else name
            items = held.items() if type(held) is dict else enumerate(held)
            for key, one in list(islice(items, MAX_HELD)):
                if issubclass(type(one), torch.nn.Module):
                    for inner, weight in parameters_of(one):
                        yield holder, f"{path_to}.{key}.{inner}", weight
                elif issubclass(type(one), torch.nn.Parameter):
                    yield holder, f"{path_to}.{key}", one


def has_parameters(module: Any) -> bool:
    """Return whether there is anything to train in a module."""
    return next(parameters_of(module), None) is not None


def has_shape(weight: Any) -> bool:
    """Return whether a weight is more than the place of one that its first call will make."""
    return not hasattr(weight, "materialize")
