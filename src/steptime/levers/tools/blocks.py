"""The blocks that a model repeats, such as a transformer's layers.

This is no lever, as it has no `LEVER`; the facts about a script (`guest/trial/lever_facts.py`) are
read by it, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

MAX_FORMS = 4
"""Forms of one class that are compiled; torch gives up at eight, and inputs may differ, too."""

MIN_OF_A_FORM = 2
"""Blocks of each form on average: with fewer, there is little to share."""

MIN_PARTS = 2
"""Parts with weights: a single layer is no block, for there is nothing to fuse."""


def find_blocks(torch: Any, model: Any) -> list[list[Any]]:
    """Return the repeated blocks of a model, outermost ones, a list for each class.

    It is empty where a model repeats nothing, or copies its modules in each call (DataParallel).
    """
    modules = list(model.modules())
    if any(isinstance(one, torch.nn.DataParallel) for one in modules):
        return []
    if any(torch.nn.parameter.is_lazy(one) for one in model.parameters()):
        return []
    by_class: dict[type, list[Any]] = {}
    for one in modules[1:]:
        if is_block(torch, one):
            by_class.setdefault(type(one), []).append(one)
    repeated = {kind for kind, blocks in by_class.items() if repeats(blocks)}
    found: dict[type, list[Any]] = {}
    for block in outermost(model, repeated, {id(model)}):
        found.setdefault(type(block), []).append(block)
    return [blocks for blocks in found.values() if repeats(blocks)]


def is_block(torch: Any, module: Any) -> bool:
    """Return whether it is no mere container, and made of several parts with weights."""
    nn = torch.nn
    if isinstance(module, (nn.Sequential, nn.ModuleList, nn.ModuleDict)):
        return False
    if isinstance(module, (torch.jit.ScriptModule, torch.fx.GraphModule)):
        return False
    parts = [one for one in module.children() if next(one.parameters(), None) is not None]
    return len(parts) >= MIN_PARTS


def repeats(blocks: list[Any]) -> bool:
    """Return whether blocks of one class have few forms, and some of each."""
    forms = {form_of(one) for one in blocks}
    return len(forms) <= MAX_FORMS and len(blocks) >= MIN_OF_A_FORM * len(forms)


def form_of(block: Any) -> tuple[Any, ...]:
    """Return what two blocks that share a graph have in common: the shapes of their weights."""
    return tuple((name, tuple(p.shape), p.dtype) for name, p in block.named_parameters())


def outermost(module: Any, kinds: set[type], seen: set[int]) -> Iterator[Any]:
    """Yield the modules of these classes that lie in no other of them, each once."""
    for child in module.children():
        if id(child) in seen:
            continue
        seen.add(id(child))
        if type(child) in kinds:
            yield child
        else:
            yield from outermost(child, kinds, seen)
