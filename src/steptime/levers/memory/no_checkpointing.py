"""Activations kept for the backward, although the script checkpoints them.

Checkpointing computes parts of the forward twice to save memory. Where the memory is there, the
functions run plainly, once. Both ways of torch are covered, wherever `checkpoint` was imported.
Left as they are: calls that do not keep random states (the second computation moves them), calls
with contexts of their own, and the reentrant way where no input needs a gradient, or one may be
hidden in a container: it does not follow those. With the reentrant way, gradients of a weight that
is used twice may be added in another order.

Source: https://docs.pytorch.org/docs/stable/checkpoint.html and our own reading of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

from ..base import Facts, Lever, Moment, Preserves, Session, Settings, Undo

MAX_FRACTION = 0.7
"""Of the memory that is free: what is needed at once beside it is not known exactly."""

UNPRESERVED = "unpreserved"


def applies(facts: Facts) -> str | None:
    """It applies where checkpointed activations fit into memory."""
    if facts.checkpoint_ways is None:
        return "It was not observed whether the script checkpoints activations."
    if not facts.checkpoint_ways:
        return "The script checkpoints no activations."
    if facts.checkpoint_ways == (UNPRESERVED,):
        return "Its checkpoints keep no random states, which computing only once would leave alone."
    if facts.has_batch_statistics:
        return "The model has batch norms, whose statistics checkpointing updates twice."
    return why_no_room(facts)


def why_no_room(facts: Facts) -> str | None:
    """Return why the activations do not fit, as a sentence; None if they do."""
    if facts.checkpointed_bytes is None:
        return "It was not observed how much memory the activations would take."
    room = facts.available_bytes if facts.device == "cpu" else facts.free_device_bytes
    if room is None:
        return "It is not known how much memory is free."
    if facts.checkpointed_bytes > MAX_FRACTION * room:
        needed, free = (f"{number / 2**30:.1f} GiB" for number in (facts.checkpointed_bytes, room))
        return f"The activations of an update need about {needed}, and {free} are free."
    return None


def class_here(facts: Facts, settings: Settings) -> Preserves | None:
    """The bits are the same where the reentrant way is not used."""
    if facts.checkpoint_ways is None or "reentrant" in facts.checkpoint_ways:
        return None
    return Preserves.EXACT


def apply(settings: Settings, session: Session) -> Undo:
    """Put plain calls in the place of what both ways of `checkpoint` end in."""
    torch = session.torch
    module: Any = import_module("torch.utils.checkpoint")
    owner = module.CheckpointFunction
    generate, begin = module._checkpoint_without_reentrant_generator, owner.apply
    before = vars(owner).get("apply")

    def run_once(
        function: Any,
        preserve: Any,
        context: Any = module.noop_context_fn,
        *rest: Any,
        **named: Any,
    ) -> Iterator[None]:
        if preserve and context is module.noop_context_fn:
            yield
            return
        yield from generate(function, preserve, context, *rest, **named)

    def run_plainly(function: Any, preserve: Any, *args: Any) -> Any:
        if preserve and torch.is_grad_enabled() and are_followed(torch, args):
            return function(*args)
        return begin(function, preserve, *args)

    def undo() -> None:
        module._checkpoint_without_reentrant_generator = generate
        if before is None:
            del owner.apply  # its base class has it
        else:
            owner.apply = before

    module._checkpoint_without_reentrant_generator = run_once
    owner.apply = staticmethod(run_plainly)
    return undo


def are_followed(torch: Any, args: tuple[Any, ...]) -> bool:
    """Return whether the reentrant way has gradients, and for all that the arguments hold."""
    tensors = [one for one in args if torch.is_tensor(one)]
    rest = [one for one in args if not torch.is_tensor(one)]
    is_plain = all(one is None or isinstance(one, (bool, int, float, str)) for one in rest)
    return is_plain and any(one.requires_grad for one in tensors)


LEVER = Lever(
    name="no_checkpointing",
    title="Keep activations in memory instead of computing them again in the backward.",
    relieves=("COMPUTE_BOUND",),
    phases=("forward", "forward_and_loss", "backward"),
    preserves=Preserves.NUMERIC,
    class_here=class_here,
    when="The script checkpoints activations (torch.utils.checkpoint), those of an update fit into "
    "the free memory, and the model has no batch norm. It is EXACT with use_reentrant=False.",
    applies=applies,
    moment=Moment.LIVE,
    judged_by_cpu_time=True,
    judged_beside_others=True,
    apply=apply,
    edit=lambda settings: (
        "x = block(x)  # instead of checkpoint(block, x); model.gradient_checkpointing_disable()"
    ),
    costs="Memory for all activations of an update, which the study estimates from one of them.",
    source="https://docs.pytorch.org/docs/stable/checkpoint.html",
)
