"""Another optimizer in the place of torch's Adam and AdamW: torch's own, or a package's.

The class that the script makes its optimizer of is replaced before the script begins, and its
settings are mapped. With Muon, the hidden matrices get its update, with the script's rate matched
to AdamW's root mean square; all other weights, embeddings and the last linear layer keep the
script's optimizer. Adafactor gets ten times the rate, as torch's defaults compare. Lion and SOAP
(pytorch_optimizer), schedule-free AdamW (schedulefree) and 8-bit Adam (torchao) are offered where
the script's Python has their package. Lion gets a tenth of the rate and ten times the decay.
Schedule-free AdamW follows a warm-up and no fall of the rate, and its weights for evaluation are
in place from `model.eval()` to `model.train()`.

Source: Jordan et al., Muon (2024); Liu et al., Muon is Scalable for LLM Training (2025), which
matches the update to AdamW's; Shazeer and Stern, Adafactor (2018); Chen et al., Lion
(2023); Vyas et al., SOAP (2024); Defazio et al., The Road Less Scheduled (2024); torch.optim.
"""

from __future__ import annotations

import functools
from importlib import import_module
from typing import Any

from ..base import Facts, Lever, Moment, Preserves, Session, Settings, Undo
from ..tools.versions import is_before
from .low_memory_states import FACTORED, REPLACED, make_factored
from .muon import ends_of, make_muon
from .package_optimizers import KINDS, ModesOfOptimizers, found_in, install_line, make_kind
from .rates import multiply_rates

MUON = "muon"
ADAFACTOR_RATE = 10.0
"""torch's default rate of Adafactor / that of Adam."""


def applies(facts: Facts) -> str | None:
    """It applies to trainings by Adam or AdamW in one process."""
    if facts.optimizers is None:
        return "Which optimizers the script uses was not observed."
    if not facts.optimizers or any(one.name not in REPLACED for one in facts.optimizers):
        return "The script has other optimizers than Adam and AdamW of torch."
    if facts.world_size > 1:
        return "Several ranks may share their states, which this has not been tried with."
    if facts.uses_scaler:
        return "A gradient scaler may leave gradients scaled until the optimizer's own step."
    if not space(facts):
        return f"Torch has Adafactor from 2.5 on, and others come by `{install_line()}`."
    return None


def space(facts: Facts) -> tuple[Settings, ...]:
    """Return the optimizers that this torch and the script's Python have."""
    kinds = [MUON] if not is_before(facts.torch_version, (2, 9)) else []
    kinds += [FACTORED] if not is_before(facts.torch_version, (2, 5)) else []
    return tuple({"optimizer": kind} for kind in (*kinds, *found_in(facts)))


def apply(settings: Settings, session: Session) -> Undo:
    """Put another class in the place of torch's Adam and AdamW.

    The rate is multiplied in each step, so a script that sets rates itself goes on with its own.

    Raises:
        ImportError: the optimizer's package is not there.
    """
    optim, kind = session.torch.optim, str(settings["optimizer"])
    keeps = import_module("torch.utils.weak").WeakIdKeyDictionary()  # tensors compare by element

    def make(name: str, own: type) -> type:
        if kind == MUON:
            return make_muon(optim, own, keeps)
        return make_factored(optim, name) if kind == FACTORED else make_kind(kind, name)

    def note(model: Any) -> None:
        keeps.update((weight, True) for weight in ends_of(session.torch, model))

    made = {name: make(name, getattr(optim, name)) for name in REPLACED}
    kinds = tuple(made.values())

    def factor_of(optimizer: Any) -> float:
        return rate_of(kind) if isinstance(optimizer, kinds) else 1.0

    undos = [multiply_rates(session, factor_of)]
    if kind == MUON:
        undos.append(session.for_each_model(note))
    elif kind in KINDS and KINDS[kind].has_modes:
        undos += ModesOfOptimizers(kinds).watch(session)
    for name in REPLACED:
        for place in (optim, import_module(f"torch.optim.{name.lower()}")):
            undos.append(functools.partial(setattr, place, name, getattr(optim, name)))
    for name in REPLACED:
        for place in (optim, import_module(f"torch.optim.{name.lower()}")):
            setattr(place, name, made[name])

    def undo() -> None:
        for take_back in undos:
            take_back()

    return undo


def rate_of(kind: str) -> float:
    """Return the rate of an optimizer / that of Adam."""
    if kind == FACTORED:
        return ADAFACTOR_RATE
    return KINDS[kind].rate if kind in KINDS else 1.0


def edit(settings: Settings) -> str:
    """Return the lines that do it in the script."""
    kind = str(settings["optimizer"])
    if kind in KINDS:
        one = KINDS[kind]
        rate = "lr" if one.rate == 1 else f"{one.rate:g} * lr"
        modes = "\noptimizer.train()  # and optimizer.eval() with the model's" * one.has_modes
        return (
            f"from {one.module} import {one.name}  # pip install {one.package}\n\n"
            f"optimizer = {one.name}(parameters, lr={rate}){modes}"
        )
    if kind == FACTORED:
        return f"optimizer = torch.optim.Adafactor(parameters, lr={ADAFACTOR_RATE:g} * lr)"
    return (
        "muon = torch.optim.Muon(matrices, lr=lr, adjust_lr_fn='match_rms_adamw')\n"
        "optimizer = torch.optim.AdamW(others, lr=lr)  # embeddings, head, vectors; step both"
    )


LEVER = Lever(
    name="other_optimizer",
    title="Train by Muon, Adafactor, Lion, SOAP, schedule-free or 8-bit Adam instead of Adam(W).",
    relieves=("BALANCED",),
    phases=("optimizer",),
    preserves=Preserves.NOTHING,
    when="The script trains by torch's Adam or AdamW in one process. It changes the training, so "
    "it is not tried unless that is allowed, and not kept without proof over seeds.",
    applies=applies,
    space=space,
    moment=Moment.STARTUP,
    apply=apply,
    edit=edit,
    costs="Muon multiplies matrices in each step, and SOAP divides them into eigenvectors in every "
    "tenth, on a CPU for long. Other updates want another rate: sweep your own flag on both "
    "sides. What is not in torch needs its package in the script's Python.",
    source="https://docs.pytorch.org/docs/stable/generated/torch.optim.Muon.html",
)
