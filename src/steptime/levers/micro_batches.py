"""Each batch goes through the model in parts, one after another; the script's loss sees all of it.

The outputs of the parts are joined, so the loss and its mean are those of the whole batch, and one
backward goes back through the parts in turn. What a part computes fits into caches and into memory
that the allocator keeps. Where memory is short, a part is computed again in the backward pass, so
that the insides of one part are held at a time.

Source: Huang et al., GPipe (2019), micro-batches; torch.utils.checkpoint. That the parts are joined
before the loss is our own way to leave a script's loss alone.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from importlib import import_module
from itertools import pairwise
from operator import methodcaller
from typing import Any

from ._memory import is_memory_short
from ._rows import batch_size, is_close, join, tensors_in
from ._tensors import map_tensors
from .base import Facts, Lever, Moment, Preserves, Session, Settings, Undo

PARTS = (2, 4, 8)
MAX_CHECKS = 8
"""Shapes that are compared; if they all gave the same, other shapes are trusted."""


def applies(facts: Facts) -> str | None:
    """It applies where rows do not depend on each other and nothing is drawn in calls."""
    if facts.has_batch_statistics:
        return "The model has batch norms, whose statistics would be those of a part."
    if facts.draws_in_calls:
        return "The model draws random numbers (dropout), and would draw others for parts."
    if facts.world_size > 1:
        return "Several ranks exchange gradients, once for each call of the model."
    if facts.uses_compile:
        return "The script compiles its model, which would be compiled again for parts."
    return None


def space(facts: Facts) -> tuple[Settings, ...]:
    """Return numbers of parts, also computed again where memory is short."""
    rows: list[Settings] = [{"parts": parts} for parts in PARTS]
    if is_memory_short(facts):
        rows += [{"parts": parts, "recompute": True} for parts in PARTS]
    return tuple(rows)


class Splitter:
    """Splits the calls of models that were found to treat each row by itself."""

    def __init__(self, torch: Any, num_parts: int, *, is_recomputed: bool) -> None:
        self.torch = torch
        self.num_parts = num_parts
        self.is_recomputed = is_recomputed
        self.known: weakref.WeakKeyDictionary[Any, dict[Any, bool]] = weakref.WeakKeyDictionary()

    def run(self, call: Callable[..., Any], model: Any, args: Any, kwargs: Any) -> Any:
        """Run a call in parts if a call with such arguments gave the same in parts before."""
        size = batch_size(self.torch, (args, kwargs))
        if not model.training or size is None or size < 2 * self.num_parts:
            return call(model, *args, **kwargs)
        shapes = tuple(tuple(one.shape) for one in tensors_in(self.torch, (args, kwargs)))
        known = self.known.setdefault(model, {})
        is_trusted = len(known) >= MAX_CHECKS and all(known.values())
        if known.get(shapes, is_trusted):
            return self.split(self.part_of(call), model, args, kwargs, size)
        if shapes in known or len(known) >= MAX_CHECKS:
            return call(model, *args, **kwargs)
        state, held = self.torch.get_rng_state(), [(b, b._version) for b in model.buffers()]
        result = call(model, *args, **kwargs)
        is_pure = self.torch.equal(state, self.torch.get_rng_state())
        is_pure = is_pure and all(buffer._version == version for buffer, version in held)
        known[shapes] = is_pure and self.is_same(call, model, args, kwargs, result)
        return result

    def is_same(
        self, call: Callable[..., Any], model: Any, args: Any, kwargs: Any, result: Any
    ) -> bool:
        """Return whether the call in parts gives the result, up to rounding."""
        size = batch_size(self.torch, (args, kwargs)) or 0
        try:
            with self.torch.no_grad():
                found = tensors_in(self.torch, self.split(call, model, args, kwargs, size))
        except (RuntimeError, TypeError, ValueError, IndexError):
            return False  # it wants whole batches, or its result has no rows
        whole = tensors_in(self.torch, result)
        return len(whole) == len(found) > 0 and all(map(is_close, found, whole))

    def split(self, call: Callable[..., Any], model: Any, args: Any, kwargs: Any, size: int) -> Any:
        """Return the result of a call in parts."""
        ends = [size * number // self.num_parts for number in range(self.num_parts + 1)]
        sizes = [end - start for start, end in pairwise(ends)]
        results = []
        for start, size in zip(ends, sizes, strict=False):
            cut = methodcaller("narrow", 0, start, size)
            own_args = map_tensors(self.torch, args, cut)
            results.append(call(model, *own_args, **map_tensors(self.torch, kwargs, cut)))
        return join(self.torch, results, sizes)

    def part_of(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return the call of a part, which is computed again in backward if that is wanted."""
        if not self.is_recomputed:
            return call
        checkpoint = import_module("torch.utils.checkpoint").checkpoint

        def run(model: Any, *args: Any, **kwargs: Any) -> Any:
            calls = iter([partial(call, model)])  # once through the levers, then the model itself
            again = partial(type(model).__call__, model)

            def compute(*args: Any, **kwargs: Any) -> Any:
                return next(calls, again)(*args, **kwargs)

            return checkpoint(compute, *args, use_reentrant=False, **kwargs)

        return run


def apply(settings: Settings, session: Session) -> Undo:
    """Put the parts around each outermost call."""
    again, parts = bool(settings.get("recompute", False)), int(settings["parts"])
    return session.wrap_calls(Splitter(session.torch, parts, is_recomputed=again).run)


LEVER = Lever(
    name="micro_batches",
    title="Send each batch through the model in parts, and join what comes out.",
    relieves=("HOST_BOUND", "MEMORY_CAPACITY_BOUND"),
    phases=("forward", "backward"),
    preserves=Preserves.NUMERIC,
    when="One rank trains, and the model treats each row by itself: it has no batch norm, draws "
    "nothing, is not compiled, and gives the same in parts (the first call of each shape is "
    "compared). The loss stays the script's own, so a mean over tokens stays what it is.",
    applies=applies,
    space=space,
    moment=Moment.LIVE,
    judged_by_cpu_time=True,
    apply=apply,
    edit=lambda settings: (
        f"parts = [model(part) for part in inputs.chunk({settings.get('parts', 2)})]\n"
        "outputs = torch.cat(parts)  # then the loss, as before"
    ),
    costs="A small batch becomes slower: each operator starts once for each part. Computed again, "
    "a step takes up to a third longer. A model that returns its loss stays as it is.",
    source="https://arxiv.org/abs/1811.06965",
)
