"""Blocks of a model that are computed again in the backward pass, where the first call allows it.

A block is computed again with the random state of its first time, so dropout drops the same
elements. Left as they are: blocks with hooks of the script's, blocks that change buffers or whose
inputs change afterwards. Levers that checkpoint share this.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any

from ..base import Session, Undo
from ..tools.inner_calls import call_module, called_instead
from ..tools.tensors import map_tensors


class Checkpointed:
    """The blocks of a model that are computed again, with what is called instead of them.

    Args:
        torch: the module.
        blocks: modules.
        contexts: by the id of a block, what makes the two contexts of its first and its second
            computation (`context_fn` of torch's checkpoint); a block without is computed whole.
    """

    def __init__(
        self,
        torch: Any,
        blocks: list[Any],
        contexts: Mapping[int, Callable[[], Any]] | None = None,
    ) -> None:
        self.contexts = contexts or {}
        self.torch = torch
        self.checkpoint = import_module("torch.utils.checkpoint").checkpoint
        self.blocks = [one for one in blocks if not has_hooks(one)]
        self.is_known = False
        self.before: dict[int, list[tuple[Any, int]]] = {}

    def call_model(self, call: Callable[..., Any], model: Any, args: Any, kwargs: Any) -> Any:
        """Call the model with its blocks; where the first call changes what it may not, again.

        The first call must not hold more than later ones, or memory would run out in it.
        """
        if self.is_known:
            return self._call(self.run, call, model, args, kwargs)
        numbers, buffers = random_states(self.torch), [(b, b.clone()) for b in model.buffers()]
        result = self._call(self.watch, call, model, args, kwargs)
        if self.learn():
            return result
        del result
        set_random_states(self.torch, numbers)
        with self.torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)
        return self._call(self.run, call, model, args, kwargs)

    def _call(self, run: Any, call: Callable[..., Any], model: Any, args: Any, kwargs: Any) -> Any:
        with called_instead([(block, partial(run, block)) for block in self.blocks]):
            return call(model, *args, **kwargs)

    def run(self, block: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a block so that it is computed again."""
        by_name = versions(self.torch, kwargs)  # torch watches the others itself

        def compute(*args: Any, **kwargs: Any) -> Any:
            if any(tensor._version != version for tensor, version in by_name):
                raise RuntimeError("the input of a block was changed after the block had read it")
            return call_module(block, *args, **kwargs)

        context = self.contexts.get(id(block))
        how = {} if context is None else {"context_fn": context}
        return self.checkpoint(compute, *args, use_reentrant=False, **how, **kwargs)

    def watch(self, block: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a block, and note what must not change: its buffers and its inputs."""
        buffers = [(one, one._version) for one in block.buffers()]
        found = [*buffers, *versions(self.torch, (args, kwargs))]
        self.before.setdefault(id(block), []).extend(found)
        return self.run(block, *args, **kwargs)

    def learn(self) -> bool:
        """Keep the blocks that were called and under which nothing changed.

        Return whether all that were called are kept.
        """
        called = [block for block in self.blocks if id(block) in self.before]
        self.blocks = [
            block
            for block in called
            if all(tensor._version == version for tensor, version in self.before[id(block)])
        ]
        self.before.clear()
        self.is_known = True
        return len(self.blocks) == len(called)


def has_hooks(block: Any) -> bool:
    """Return whether a script's hooks would run twice."""
    modules = list(block.modules())
    return any(one._forward_hooks or one._forward_pre_hooks for one in modules)


def versions(torch: Any, value: Any) -> list[tuple[Any, int]]:
    """Return the tensors in what a block takes, each with how often it was changed in place."""
    found: list[tuple[Any, int]] = []

    def note(tensor: Any) -> Any:
        if not tensor.is_inference():
            found.append((tensor, tensor._version))
        return tensor

    map_tensors(torch, value, note)
    return found


def random_states(torch: Any) -> tuple[Any, Any]:
    """Return the states of torch's generators: of the CPU, and of devices that are in use."""
    devices = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None
    return torch.get_rng_state(), devices


def set_random_states(torch: Any, states: tuple[Any, Any]) -> None:
    """Put these states back."""
    here, devices = states
    torch.set_rng_state(here)
    if devices is not None:
        torch.cuda.set_rng_state_all(devices)


def compute_again(session: Session, choose: Callable[[Any], Checkpointed]) -> Undo:
    """Compute the chosen blocks of each model again, in its calls in training."""
    known: weakref.WeakKeyDictionary[Any, Checkpointed] = weakref.WeakKeyDictionary()

    def run(call: Callable[..., Any], model: Any, args: Any, kwargs: Any) -> Any:
        if not model.training or hasattr(model, "_orig_mod"):
            return call(model, *args, **kwargs)
        if model not in known:
            known[model] = choose(model)
        checkpointed = known[model]
        return checkpointed.call_model(call, model, args, kwargs)

    return session.wrap_calls(run)
