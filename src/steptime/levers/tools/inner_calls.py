"""Other calls of modules inside a model, for as long as the model's own call lasts.

Torch has a place on each module for a compiled call, which it calls instead of the module's own and
leaves out of checkpoints and copies. It is filled when a call of the model or a backward begins and
empty again when that ends, so nothing of ours stays on a module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

PLACE = "_compiled_call_impl"

Calls = list[tuple[Any, Callable[..., Any]]]
"""Modules, and what is called instead of each."""


def call_module(module: Any, *args: Any, **kwargs: Any) -> Any:
    """Make a module's own call, with its hooks, past the place."""
    return module._call_impl(*args, **kwargs)


@contextmanager
def called_instead(calls: Iterable[tuple[Any, Callable[..., Any]]]) -> Iterator[None]:
    """Make these calls instead of the modules' own; a module that is compiled keeps its call."""
    filled: list[dict[str, Any]] = []
    for module, call in calls:
        attributes = module.__dict__
        if attributes.get(PLACE) is None:
            attributes[PLACE] = call
            filled.append(attributes)
    try:
        yield
    finally:
        for attributes in filled:
            attributes.pop(PLACE, None)
