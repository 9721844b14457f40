"""Replaces tensors inside what a model takes or returns; several levers share this."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

MAX_DEPTH = 8
"""How deep containers are searched; the search must end for one that contains itself."""


def map_tensors(torch: Any, value: Any, convert: Callable[[Any], Any], depth: int = 0) -> Any:
    """Return the value with `convert(tensor)` for each tensor; if none changes, the value itself.

    It searches tuples, lists, dicts, dataclasses and objects with tensors among their attributes.
    Containers are copied, because somebody may hold the original.
    """
    if isinstance(value, torch.Tensor):
        return convert(value)
    if depth > MAX_DEPTH or callable(value):
        return value
    pairs, put = parts_of(value)
    found = [(key, old, map_tensors(torch, old, convert, depth + 1)) for key, old in pairs]
    changed = [(key, new) for key, old, new in found if new is not old]
    if not changed:
        return value
    if isinstance(value, tuple):
        items = [new for _, _, new in found]
        return value._make(items) if hasattr(value, "_make") else type(value)(items)
    value = copy.copy(value)
    for key, new in changed:
        put(value, key, new)
    return value


def parts_of(value: Any) -> tuple[list[tuple[Any, Any]], Callable[[Any, Any, Any], None]]:
    """Return what a container holds, by key, and how to put something there."""
    if isinstance(value, (tuple, list)):
        return list(enumerate(value)), list.__setitem__
    if isinstance(value, dict):  # a subclass may keep its attributes equal to its items
        return list(value.items()), type(value).__setitem__
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
        return [(name, getattr(value, name)) for name in names], object.__setattr__
    return list(getattr(value, "__dict__", {}).items()), object.__setattr__
