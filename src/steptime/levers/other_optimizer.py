"""Another optimizer in the place of torch's Adam and AdamW: torch's own Muon, or Adafactor.

The class that the script makes its optimizer of is replaced before the script begins, and its
settings are mapped. With Muon, the hidden matrices get its update, with the script's rate matched
to AdamW's root mean square; all other weights, embeddings and the last linear layer keep the
script's optimizer. Adafactor gets ten times the rate, as torch's defaults compare.

Source: Jordan et al., Muon (2024); Liu et al., Muon is Scalable for LLM Training (2025), which
matches the update to AdamW's; Shazeer and Stern, Adafactor (2018); torch.optim.
"""

from __future__ import annotations

import functools
import inspect
from importlib import import_module
from typing import Any

from ._versions import is_before
from .base import Facts, Lever, Moment, Preserves, Session, Settings, Undo
from .low_memory_states import FACTORED, REPLACED, make_factored, named_as_torchs

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
        return "Torch has Muon from 2.9 and Adafactor from 2.5 on."
    return None


def space(facts: Facts) -> tuple[Settings, ...]:
    """Return the optimizers that this torch has."""
    kinds = [MUON] if not is_before(facts.torch_version, (2, 9)) else []
    kinds += [FACTORED] if not is_before(facts.torch_version, (2, 5)) else []
    return tuple({"optimizer": kind} for kind in kinds)


def apply(settings: Settings, session: Session) -> Undo:
    """Put another class in the place of torch's Adam and AdamW."""
    optim, kind = session.torch.optim, str(settings["optimizer"])
    keeps = import_module("torch.utils.weak").WeakIdKeyDictionary()  # tensors compare by element

    def note(model: Any) -> None:
        keeps.update((weight, True) for weight in ends_of(session.torch, model))

    undos = [session.for_each_model(note)]
    for name in REPLACED:
        own = getattr(optim, name)
        made = make_muon(optim, own, keeps) if kind == MUON else make_factored(
            optim, name, rate_factor=ADAFACTOR_RATE
        )  # fmt: skip
        for place in (optim, import_module(f"torch.optim.{name.lower()}")):
            undos.append(functools.partial(setattr, place, name, own))
            setattr(place, name, made)

    def undo() -> None:
        for take_back in undos:
            take_back()

    return undo


def ends_of(torch: Any, model: Any) -> list[Any]:
    """Return the weights of embeddings and of the last linear layer: Muon is not for them."""
    modules = list(model.modules())
    linear = [one for one in modules if isinstance(one, torch.nn.Linear)]
    embeddings = [one for one in modules if isinstance(one, torch.nn.Embedding)]
    return [one.weight for one in (*embeddings, *linear[-1:])]


def make_muon(optim: Any, own: Any, keeps: Any) -> type:
    """Return a subclass of Adam or AdamW (`own`) that updates matrices by Muon, less `keeps`."""
    decays = own.__name__ == "AdamW"  # Adam's decay is part of the gradient, which Muon has not
    step_of_own, step_of_muon = inspect.unwrap(own.step), inspect.unwrap(optim.Muon.step)

    def step(self: Any, closure: Any = None) -> Any:
        torch, loss = import_module("torch"), None
        hidden: dict[Any, Any] = {}
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with torch.no_grad():
            for group in self.param_groups:
                taken = [p for p in group["params"] if is_hidden_matrix(p) and p not in keeps]
                if taken:
                    inner = optim.Muon(
                        taken,
                        lr=group["lr"],
                        weight_decay=group["weight_decay"] if decays else 0.0,
                        adjust_lr_fn="match_rms_adamw",
                    )
                    inner.state = self.state  # one place for both: a checkpoint has it all
                    step_of_muon(inner)
                hidden.update((weight, weight.grad) for weight in taken)
            for weight in hidden:
                weight.grad = None
            step_of_own(self)
            for weight, gradient in hidden.items():
                weight.grad = gradient
        return loss

    return named_as_torchs(own.__name__, own, own.__init__, step=step)


def is_hidden_matrix(weight: Any) -> bool:
    """Return whether Muon can update a weight that has a gradient."""
    return weight.grad is not None and weight.dim() == 2 and not weight.grad.is_sparse


def edit(settings: Settings) -> str:
    """Return the lines that do it in the script."""
    if settings["optimizer"] == FACTORED:
        return f"optimizer = torch.optim.Adafactor(parameters, lr={ADAFACTOR_RATE:g} * lr)"
    return (
        "muon = torch.optim.Muon(matrices, lr=lr, adjust_lr_fn='match_rms_adamw')\n"
        "optimizer = torch.optim.AdamW(others, lr=lr)  # embeddings, head, vectors; step both"
    )


LEVER = Lever(
    name="other_optimizer",
    title="Train by Muon or Adafactor of torch in the place of Adam or AdamW.",
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
    costs="Muon multiplies matrices in each step, on a CPU for long. Other updates want another "
    "rate: sweep it with rate_factor on both sides.",
    source="https://docs.pytorch.org/docs/stable/generated/torch.optim.Muon.html",
)
