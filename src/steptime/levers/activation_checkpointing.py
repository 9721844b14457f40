"""Repeated blocks keep their inputs alone, and are computed again in the backward pass.

Autograd then holds the insides of one block at a time. A block is computed again with the random
state of its first time, so dropout drops the same elements and each bit stays. Left as they are:
blocks with hooks of the script's, blocks that change buffers or whose inputs change afterwards.

Source: Chen et al., Training Deep Nets with Sublinear Memory Cost (2016); torch.utils.checkpoint
(non-reentrant).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from ._blocks import find_blocks
from ._inner_calls import call_module, called_instead
from ._memory import MIN_MEMORY_FRACTION, why_memory_suffices
from ._tensors import map_tensors
from .base import Facts, Lever, Moment, Preserves, Session, Settings, Undo

MIN_BLOCKS = 4
"""With fewer blocks, one that is computed again is a large part of what all of them keep."""


def applies(facts: Facts) -> str | None:
    """It applies where memory is short and a model repeats blocks without batch statistics."""
    if facts.num_repeated_blocks is not None and facts.num_repeated_blocks < MIN_BLOCKS:
        return f"The model does not repeat a block of several layers {MIN_BLOCKS} times."
    if facts.has_batch_statistics:
        return "The model has batch norms, which would count a batch twice."
    if facts.uses_compile:
        return "The script compiles its model, which decides itself what to compute again."
    return why_memory_suffices(facts)


class Checkpointed:
    """The blocks of a model that are computed again, with what is called instead of them."""

    def __init__(self, torch: Any, blocks: list[Any]) -> None:
        self.torch = torch
        self.checkpoint = import_module("torch.utils.checkpoint").checkpoint
        self.blocks = [one for one in blocks if not has_hooks(one)]
        self.is_known = False
        self.before: dict[int, list[tuple[Any, int]]] = {}

    def calls(self) -> list[tuple[Any, Callable[..., Any]]]:
        """Return the blocks and their calls: in the first call of the model, they are watched."""
        run = self.run if self.is_known else self.watch
        return [(block, partial(run, block)) for block in self.blocks]

    def run(self, block: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a block so that it is computed again."""
        by_name = versions(self.torch, kwargs)  # torch watches the others itself

        def compute(*args: Any, **kwargs: Any) -> Any:
            if any(tensor._version != version for tensor, version in by_name):
                raise RuntimeError("the input of a block was changed after the block had read it")
            return call_module(block, *args, **kwargs)

        return self.checkpoint(compute, *args, use_reentrant=False, **kwargs)

    def watch(self, block: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a block as it is, and note what must not change: its buffers and its inputs."""
        buffers = [(one, one._version) for one in block.buffers()]
        found = [*buffers, *versions(self.torch, (args, kwargs))]
        self.before.setdefault(id(block), []).extend(found)
        return call_module(block, *args, **kwargs)

    def learn(self) -> None:
        """Keep the blocks that were called and under which nothing changed."""
        self.blocks = [
            block
            for block in self.blocks
            if id(block) in self.before
            and all(tensor._version == version for tensor, version in self.before[id(block)])
        ]
        self.before.clear()
        self.is_known = True


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


def apply(settings: Settings, session: Session) -> Undo:
    """Let every block, or every second one, be computed again, in each model that repeats some."""
    torch, every = session.torch, int(settings["every"])
    known: weakref.WeakKeyDictionary[Any, Checkpointed] = weakref.WeakKeyDictionary()

    def run(call: Callable[..., Any], model: Any, args: Any, kwargs: Any) -> Any:
        if not model.training or hasattr(model, "_orig_mod"):
            return call(model, *args, **kwargs)
        if model not in known:
            blocks = [one for group in find_blocks(torch, model) for one in group[::every]]
            known[model] = Checkpointed(torch, blocks)
        checkpointed = known[model]
        with called_instead(checkpointed.calls()):
            result = call(model, *args, **kwargs)
        if not checkpointed.is_known:
            checkpointed.learn()
        return result

    return session.wrap_calls(run)


LEVER = Lever(
    name="activation_checkpointing",
    title="Keep the inputs of repeated blocks alone, and compute blocks again in backward.",
    relieves=("MEMORY_CAPACITY_BOUND",),
    phases=("forward", "forward_and_loss", "backward"),
    preserves=Preserves.EXACT,
    when=f"The training holds {MIN_MEMORY_FRACTION:.0%} of the memory that it may have, and the "
    f"model repeats a block at least {MIN_BLOCKS} times and has no batch norm.",
    applies=applies,
    space=lambda facts: ({"every": 2}, {"every": 1}),
    moment=Moment.LIVE,
    judged_by_cpu_time=True,
    apply=apply,
    edit=lambda settings: (
        "from torch.utils.checkpoint import checkpoint\n\n"
        f"for number, block in enumerate(self.blocks):  # every {settings.get('every', 1)}. one\n"
        "    x = checkpoint(block, x, use_reentrant=False)"
    ),
    costs="The forward of these blocks is computed twice: a step takes up to a third longer, if "
    "what it saves is not memory that the machine has to swap.",
    source="https://docs.pytorch.org/docs/stable/checkpoint.html",
)
