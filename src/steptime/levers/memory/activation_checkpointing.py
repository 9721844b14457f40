"""Repeated blocks keep their inputs alone, and are computed again in the backward pass.

Autograd then holds the insides of one block at a time. A block is computed again with the random
state of its first time, so dropout drops the same elements and each bit stays. Left as they are:
blocks with hooks of the script's, blocks that change buffers or whose inputs change afterwards.

Source: Chen et al., Training Deep Nets with Sublinear Memory Cost (2016); torch.utils.checkpoint
(non-reentrant).
"""

from __future__ import annotations

from typing import Any

from ..base import Facts, Lever, Moment, Preserves, Session, Settings, Undo
from ..tools.blocks import find_blocks
from ..tools.memory_room import MIN_MEMORY_FRACTION, why_memory_suffices
from .block_choice import freed_bytes
from .checkpointed import Checkpointed, compute_again

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


def apply(settings: Settings, session: Session) -> Undo:
    """Let every block, or every second one, be computed again, in each model that repeats some."""
    torch, every = session.torch, int(settings["every"])

    def choose(model: Any) -> Checkpointed:
        blocks = [one for group in find_blocks(torch, model) for one in group[::every]]
        return Checkpointed(torch, blocks)

    return compute_again(session, choose)


def frees(facts: Facts, settings: Settings) -> int | None:
    """Return what the blocks keep less at the fullest moment of the backward."""
    names = [one.name for one in facts.blocks or ()]
    chosen = names[:: int(settings["every"])]
    return freed_bytes(facts.blocks or (), whole=chosen) if names else None


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
    frees=frees,
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
