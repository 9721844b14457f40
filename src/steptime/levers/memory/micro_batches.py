"""Each batch goes through the model in parts, one after another; the script's loss sees all of it.

The outputs of the parts are joined, so the loss and its mean are those of the whole batch, and one
backward goes back through the parts in turn. What a part computes fits into caches and into memory
that the allocator keeps. Where memory is short, a part is computed again in the backward pass, so
that the insides of one part are held at a time.

Source: Huang et al., GPipe (2019), micro-batches; torch.utils.checkpoint. That the parts are joined
before the loss is our own way to leave a script's loss alone.
"""

from __future__ import annotations

from ..base import Facts, Lever, Moment, Preserves, Session, Settings, Undo
from ..tools.memory_room import is_memory_short
from .row_parts import Splitter

PARTS = (2, 4, 8)
_CALLS = (
    "model(part)",
    "torch.utils.checkpoint.checkpoint(model, part, use_reentrant=False)",
)


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
        f"parts = [{_CALLS[bool(settings.get('recompute'))]} "
        f"for part in inputs.chunk({settings.get('parts', 2)})]\n"
        "outputs = torch.cat(parts)  # then the loss, as before"
    ),
    costs="A small batch becomes slower: each operator starts once for each part. Computed again, "
    "a step takes up to a third longer. Several losses of an update, several backward calls and "
    "several models give the gradients of the whole batch. A model that returns its "
    "losses itself stays as it is: what it averages over, and so how much each part counts, is not "
    "known.",
    source="https://arxiv.org/abs/1811.06965",
)
