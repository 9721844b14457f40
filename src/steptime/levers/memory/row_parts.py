"""Sends a batch through a model in parts, once a call in parts was found to give the same.

This is no lever, as it has no `LEVER`; `micro_batches` uses it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from importlib import import_module
from itertools import pairwise
from operator import methodcaller
from typing import Any

from ..tools.dry_call import dry_call
from ..tools.model_rows import batch_size, is_close, join, tensors_in
from ..tools.tensors import map_tensors

MAX_CHECKS = 8
"""Shapes that are compared; if they all gave the same, other shapes are trusted."""


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
            return self.split(self.part_of(call), model, args, kwargs, self.num_parts)
        if shapes in known or len(known) >= MAX_CHECKS:
            return call(model, *args, **kwargs)
        if self.is_recomputed:  # memory is short: nothing of the batch is kept
            two = methodcaller("narrow", 0, 0, size * 2 // self.num_parts)
            few, few_named = (map_tensors(self.torch, one, two) for one in (args, kwargs))
            with dry_call(self.torch, model):
                known[shapes] = self.can_split(call, model, few, few_named, num_parts=2)[0]
            return self.run(call, model, args, kwargs)
        is_same, result = self.can_split(call, model, args, kwargs, num_parts=self.num_parts)
        known[shapes] = is_same
        return result

    def can_split(
        self, call: Callable[..., Any], model: Any, args: Any, kwargs: Any, *, num_parts: int
    ) -> tuple[bool, Any]:
        """Return whether a call gives the same in parts and changes nothing, and its result.

        Where memory is short this is asked of two parts, together and one by one: the whole batch
        may not fit, not even without what its backward needs.
        """
        state, held = self.torch.get_rng_state(), [(b, b._version) for b in model.buffers()]
        result = call(model, *args, **kwargs)
        is_pure = self.torch.equal(state, self.torch.get_rng_state())
        is_pure = is_pure and all(buffer._version == version for buffer, version in held)
        if not is_pure:
            return False, result
        try:
            with self.torch.no_grad():
                found = self.split(call, model, args, kwargs, num_parts)
        except (RuntimeError, TypeError, ValueError, IndexError):
            return False, result  # it wants whole batches, or its result has no rows
        parts, whole = tensors_in(self.torch, found), tensors_in(self.torch, result)
        is_same = len(whole) == len(parts) > 0 and all(map(is_close, parts, whole))
        return is_same, result

    def split(
        self, call: Callable[..., Any], model: Any, args: Any, kwargs: Any, num_parts: int
    ) -> Any:
        """Return the result of a call in parts."""
        size = batch_size(self.torch, (args, kwargs)) or 0
        ends = [size * number // num_parts for number in range(num_parts + 1)]
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
