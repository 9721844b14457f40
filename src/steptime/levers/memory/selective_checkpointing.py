"""Of the repeated blocks, those are computed again that free the wanted memory in the least time.

Blocks differ in what they keep and in how long they take, and so do the operators in them: results
of matrix products take long to compute again, those of activations and normalizations do not. Both
were measured in the untouched run. A block is computed again with the random state of its first
time, so each bit stays. Which blocks it is stands in the settings, so a recipe does the same again.

Source: Jain et al., Checkmate (2020), that a solver chooses by measured costs; Korthikanti et al.,
Reducing Activation Recomputation (2022), selective recomputation; torch.utils.checkpoint,
`create_selective_checkpoint_contexts`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from ..base import BlockFacts, Facts, Lever, Moment, Preserves, Session, Settings, Undo
from ..tools.blocks import find_blocks
from ..tools.memory_room import MIN_MEMORY_FRACTION, why_memory_suffices
from .block_choice import BlockChoice, choose, fold, freed_bytes, unfold
from .checkpointed import Checkpointed, compute_again

WANTED = (0.25, 0.5, 0.75)
"""Parts of what the blocks keep that are to be freed."""


def applies(facts: Facts) -> str | None:
    """It applies where memory is short and blocks without batch statistics were measured."""
    if facts.has_batch_statistics:
        return "The model has batch norms, which would count a batch twice."
    if facts.uses_compile:
        return "The script compiles its model, which decides itself what to compute again."
    if facts.blocks is None:
        return "What the model's blocks keep for the backward was not observed."
    if not space(facts):
        return "The model repeats no block that keeps more than it is called with."
    return why_memory_suffices(facts)


def space(facts: Facts) -> tuple[Settings, ...]:
    """Return the choices that free a quarter, a half and three quarters of what blocks keep."""
    blocks = facts.blocks or ()
    total = sum(one.kept_bytes for one in blocks)
    found: list[Settings] = []
    for part in WANTED:
        settings = settings_for(blocks, round(part * total)) if total else None
        if settings is not None and settings not in found:
            found.append(settings)
    return tuple(found)


def settings_for(blocks: tuple[BlockFacts, ...], free_bytes: int) -> Settings | None:
    """Return the settings that free so many bytes; None if none do, or nothing is to be freed."""
    choice = choose(blocks, free_bytes)
    if choice is None or not (choice.whole or choice.partly):
        return None
    return settings_of(choice)


def settings_of(choice: BlockChoice) -> Settings:
    """Return a choice as settings: names of blocks and operators, each in one line."""
    found = {
        "whole": fold(choice.whole),
        "partly": fold(choice.partly),
        "keep": " ".join(choice.keep),
    }
    return {name: text for name, text in found.items() if text}


def frees(facts: Facts, settings: Settings) -> int | None:
    """Return what the blocks keep less at the fullest moment of the backward."""
    whole, partly = (unfold(str(settings.get(name, ""))) for name in ("whole", "partly"))
    keep = str(settings.get("keep", "")).split()
    if facts.blocks is None:
        return None
    return freed_bytes(facts.blocks, whole=whole, partly=partly, keep=keep)


def apply(settings: Settings, session: Session) -> Undo:
    """Let the named blocks be computed again, whole or except for results that are kept."""
    torch = session.torch
    whole, partly = (set(unfold(str(settings.get(name, "")))) for name in ("whole", "partly"))
    context = keeping(torch, str(settings.get("keep", "")).split())

    def choose_blocks(model: Any) -> Checkpointed:
        of_model = {
            id(one): f"{type(model).__name__}.{name}" for name, one in model.named_modules()
        }
        blocks = [one for group in find_blocks(torch, model) for one in group]
        contexts = {id(one): context for one in blocks if of_model[id(one)] in partly}
        chosen = [one for one in blocks if of_model[id(one)] in whole | partly]
        return Checkpointed(torch, chosen, contexts)

    return compute_again(session, choose_blocks)


def keeping(torch: Any, names: list[str]) -> Callable[[], Any]:
    """Return what makes torch's contexts in which the results of these operators are kept."""
    make = import_module("torch.utils.checkpoint").create_selective_checkpoint_contexts
    return partial(make, [operator_of(torch, name) for name in names])


def operator_of(torch: Any, name: str) -> Any:
    """Return the operator of a name such as `aten.addmm.default`."""
    space_of, packet, overload = name.split(".")
    return getattr(getattr(getattr(torch.ops, space_of), packet), overload)


def edit(settings: Settings) -> str:
    """Return the lines that do it in the script."""
    whole, partly, keep = (str(settings.get(name, "")) for name in ("whole", "partly", "keep"))
    lines = [
        "from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts\n"
    ]
    if whole:
        lines.append(f"# in {whole}\nx = checkpoint(block, x, use_reentrant=False)")
    if partly:
        operators = ", ".join(f"torch.ops.{name}" for name in keep.split())
        lines.append(
            f"# in {partly}\nkeep = partial(create_selective_checkpoint_contexts, [{operators}])\n"
            "x = checkpoint(block, x, use_reentrant=False, context_fn=keep)"
        )
    return "\n".join(lines)


LEVER = Lever(
    name="selective_checkpointing",
    title="Compute those blocks again that free the wanted memory in the least time.",
    relieves=("MEMORY_CAPACITY_BOUND",),
    phases=("forward", "forward_and_loss", "backward"),
    preserves=Preserves.EXACT,
    when=f"The training holds {MIN_MEMORY_FRACTION:.0%} of the memory that it may have, and what "
    "the blocks keep was measured. The model has no batch norm and is not compiled.",
    applies=applies,
    space=space,
    moment=Moment.LIVE,
    judged_by_cpu_time=True,
    frees=frees,
    apply=apply,
    edit=edit,
    costs="The chosen parts of the forward are computed twice; the choice says what that takes.",
    source="https://arxiv.org/abs/1910.02653",
)
