"""The first steps see the beginnings of the rows alone; their length grows to the whole row.

Attention over a quarter of a row costs a sixteenth, and early steps learn what lies near. All
tables of a batch are cut at one place. A batch of torch's DataLoader is cut as it is handed out,
while the model is in training mode and gradients are on; a model that is called with tokens and
targets together, and gives a loss, is cut there. The first step, and evaluations, see whole rows.

Source: Li et al., The Stability-Efficiency Dilemma: Investigating Sequence Length Warmup for
Training GPT Models (2022, arXiv 2108.06084), whose pace is linear too; Press et al., Shortformer
(2021, arXiv 2012.15832).
"""

from __future__ import annotations

import weakref
from typing import Any

from ._growth import GROWTH_STEPS, GrowingShare
from ._row_cuts import LossesInside, cut_batch, cut_like
from .base import Facts, Lever, Moment, Preserves, Session, Settings, Undo

STARTS = (0.5, 0.25)
"""Of a row; the milder change first."""


def applies(facts: Facts) -> str | None:
    """It applies to models of tokens that are not compiled."""
    if facts.has_token_embedding is None:
        return "It was not observed whether the model embeds tokens."
    if not facts.has_token_embedding:
        return "The model embeds no tokens."
    if facts.uses_compile:
        return "The script compiles its model, which would be compiled again for each length."
    padded = [one.padding for one in facts.loaders or () if one.padding is not None]
    if padded and all(one.side == "left" for one in padded):
        return "Rows are padded in front, so their content is at the end that would be cut."
    return None


def apply(settings: Settings, session: Session) -> Undo:
    """Cut batches and calls while fewer steps were made than the growth takes."""
    torch, growth = session.torch, GrowingShare(settings)
    iterator = torch.utils.data.dataloader._BaseDataLoaderIter
    following, inside = iterator.__next__, LossesInside(torch)
    models: weakref.WeakSet[Any] = weakref.WeakSet()

    def give_next(self: Any) -> Any:
        batch = following(self)
        now = growth.fraction()
        is_training = torch.is_grad_enabled() and any(one.training for one in models)
        if now == 1 or not is_training:
            return batch
        cut = cut_batch(torch, batch, now)
        if cut is not batch:
            session.count("cut_batch")
        return cut

    def call_model(call: Any, model: Any, args: Any, kwargs: Any) -> Any:
        now = growth.fraction()
        tokens = inside.tokens_in(args, kwargs) if now < 1 and model.training else None
        if tokens is None:
            return call(model, *args, **kwargs)
        if not inside.is_known(model):
            result = call(model, *args, **kwargs)
            inside.look_at(model, result)
            return result
        if inside.has_loss(model):
            session.count("cut_call")
            args, kwargs = cut_like(torch, (args, kwargs), tokens, now)
        return call(model, *args, **kwargs)

    undos = [
        session.for_each_model(models.add),
        growth.watch(session),
        session.wrap_calls(call_model),
    ]
    iterator.__next__ = give_next

    def undo() -> None:
        iterator.__next__ = following
        for take_back in undos:
            take_back()

    return undo


def edit(settings: Settings) -> str:
    """Return the lines that do it in the script."""
    start, steps = settings["start"], settings["steps"]
    return (
        f"fraction = min(1.0, {start} + {1 - float(start):g} * step / {steps})\n"
        "length = max(8, int(fraction * tokens.shape[1]) // 8 * 8)\n"
        "tokens, targets = tokens[:, :length], targets[:, :length]"
    )


LEVER = Lever(
    name="progressive_length",
    title="Let the first steps see the beginnings of rows, whose length grows to the whole row.",
    relieves=("COMPUTE_BOUND", "MEMORY_BANDWIDTH_BOUND", "BALANCED"),
    phases=("h2d", "forward", "loss", "forward_and_loss", "backward"),
    preserves=Preserves.NOTHING,
    when="The model embeds tokens and is not compiled, and its batches hold tables of 32 tokens a "
    "row and more with their targets. It changes the training, so it is not tried unless that is "
    "allowed, and not kept without proof over seeds.",
    applies=applies,
    space=lambda facts: tuple({"start": one, "steps": GROWTH_STEPS} for one in STARTS),
    moment=Moment.STARTUP,
    apply=apply,
    edit=edit,
    costs="As many steps see fewer tokens. Targets of whole rows are not learned from their ends, "
    "and a model for one length fails. A script that evaluates without `eval()` evaluates rows "
    "that are cut, until they are whole. Set `steps` in the recipe: a tenth to a third of yours.",
    source="https://arxiv.org/abs/2108.06084",
)
