"""Compiled forms of models and of their repeated blocks, and how nothing of them stays on a model.

Blocks of one class and one form share a graph, because torch passes their weights in. So a deep
model is compiled in the time of one layer. This is no lever, as it has no `LEVER`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import FunctionType
from typing import Any

from ..tools.blocks import find_blocks

MAX_MODELS = 8
"""Compiled models that are kept; a script with a model for each fold would otherwise keep all."""

kept_forms: dict[tuple[int, str, str], tuple[Any, Any, list[Any]]] = {}
"""Models with their compiled forms, by id, scope and mode. They are kept while the lever is off,
because switching it on again must not compile again; as the model is kept, its id is not reused."""


SLOT = "_compiled_call_impl"
"""What torch itself calls instead of a module's own call; it leaves this out when it pickles."""

MARK = "_dynamo_static_input_type"
"""It says that a parameter keeps its address, and is read when its graph is made."""

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")

Calls = list[tuple[dict[str, Any], Callable[..., Any], list[Any]]]
"""The attributes of each block, what is called instead, and the hooks in it."""


def kept(
    torch: Any, model: Any, key: tuple[str, str], ways: Mapping[str, Any]
) -> tuple[Any, Any, list[Any]]:
    """Return a model, its compiled form, which compiles when first called, and its parameters."""
    whole_key = id(model), *key
    if whole_key not in kept_forms:
        while len(kept_forms) >= MAX_MODELS:
            del kept_forms[next(iter(kept_forms))]
        names = set(vars(model))
        if key[0] == "blocks":
            form = compiled_calls(torch, model, lambda call: torch.compile(call, **ways))
        else:
            form = torch.compile(model, **ways)
        for name in set(vars(model)) - names:  # torch marks the model through its wrapper
            delattr(model, name)
        kept_forms[whole_key] = model, form, unmarked(model)
    return kept_forms[whole_key]


# -- blocks


def call_block(block: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Call a block past its slot, with its hooks."""
    return block._call_impl(*args, **kwargs)


def compiled_calls(torch: Any, model: Any, make: Callable[..., Any]) -> Calls:
    """Return the repeated blocks of a model with their compiled calls; `make` compiles."""
    calls: Calls = []
    for blocks in find_blocks(torch, model):
        # Torch keeps graphs by code, and gives up after eight: each class has its own.
        code = call_block.__code__.replace(co_name=f"call_{type(blocks[0]).__name__}")
        compiled = make(FunctionType(code, call_block.__globals__))
        calls += [(vars(block), partial(compiled, block), hooks_in(block)) for block in blocks]
    return calls


def hooks_in(block: Any) -> list[Any]:
    """Return the places for hooks of a block and its parts."""
    return [getattr(part, name) for part in block.modules() for name in HOOKS]


@contextmanager
def switched_on(calls: Calls) -> Iterator[None]:
    """Let these blocks run their compiled calls; afterwards nothing of it is on them.

    A block with hooks runs as it is: torch does not check whether another block's graph has them.
    """
    filled = []
    for names, call, hooks in calls:
        if names.get(SLOT) is None and not any(hooks):
            names[SLOT] = call
            filled.append(names)
    try:
        yield
    finally:
        for names in filled:
            names.pop(SLOT, None)


# -- marks of the compiler


def unmarked(model: Any) -> list[Any]:
    """Return the parameters on which the script has put no mark of the compiler's."""
    return [one for one in model.parameters() if MARK not in vars(one)]


def unmark(parameters: list[Any]) -> None:
    """Take the mark away that torch puts on parameters as it compiles: pickles would hold it."""
    for one in parameters:
        vars(one).pop(MARK, None)
