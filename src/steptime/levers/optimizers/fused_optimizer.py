"""The optimizer's update in one kernel (fused), or in one kernel for each operator (foreach).

It is switched in the parameter groups between steps, and the optimizer keeps its state. A fused
kernel on a CPU ignores strides: a gradient or state with another layout than its weight would
silently be applied to the wrong elements, so all are laid out alike.

Source: torch.optim, "Algorithms"; PyTorch 2.4 release notes for CPUs.
"""

from __future__ import annotations

import weakref
from itertools import zip_longest
from typing import Any

from ..base import Facts, Lever, Moment, OptimizerFacts, Preserves, Session, Settings, Undo
from ..tools.optimizer_layout import (
    count_steps_there,
    lay_out_gradients,
    lay_out_states,
    parameters_of,
)

HAVE_FOREACH = (
    *("ASGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax"),
    *("NAdam", "RAdam", "RMSprop", "Rprop", "SGD"),
)
"""Torch's optimizers that can update by foreach; it is their default on CUDA devices only."""


def applies(facts: Facts) -> str | None:
    """Return why it does not apply, if so."""
    if facts.optimizers is None:
        return None
    if not facts.optimizers:
        return "No optimizer of torch was seen."
    if all(one.is_fused for one in facts.optimizers):
        return "The optimizer is fused already."
    if not space(facts):
        names = ", ".join(sorted({one.name for one in facts.optimizers}))
        return f"Torch has no faster implementation of {names} on this {facts.device}."
    return None


def space(facts: Facts) -> tuple[Settings, ...]:
    """Return fused where an optimizer can be fused, and foreach where it is not used already."""
    if facts.optimizers is None:  # `can_flip` asks the optimizer itself
        return {"implementation": "fused"}, {"implementation": "foreach"}
    settings: list[Settings] = []
    if any(one.can_fuse and not one.is_fused for one in facts.optimizers):
        settings.append({"implementation": "fused"})
    if any(is_foreach_new(one, facts.device) for one in facts.optimizers):
        settings.append({"implementation": "foreach"})
    return tuple(settings)


def is_foreach_new(optimizer: OptimizerFacts, device: str) -> bool:
    """Return whether the optimizer could use foreach and does not."""
    if optimizer.is_fused or optimizer.is_foreach or optimizer.name not in HAVE_FOREACH:
        return False
    return optimizer.is_foreach is False or device == "cpu"


def apply(settings: Settings, session: Session) -> Undo:
    """Switch each optimizer that can be switched, before its next step."""
    torch = session.torch
    name = str(settings["implementation"])
    flipped: dict[int, tuple[weakref.ref[Any], list[dict[str, Any]]]] = {}

    def flip(optimizer: Any) -> None:
        if not can_flip(torch, optimizer, name):
            return
        holders = (optimizer.defaults, *optimizer.param_groups)
        keys = [key for key in ("fused", "foreach") if key in optimizer.defaults]
        before = [{key: holder.get(key) for key in keys} for holder in holders]
        flipped[id(optimizer)] = (weakref.ref(optimizer), before)
        for holder in holders:
            holder.update({key: key == name or None for key in keys})
        lay_out_states(torch, optimizer)
        count_steps_there(torch, optimizer)

    def align(optimizer: Any) -> None:
        if id(optimizer) in flipped:
            lay_out_gradients(torch, parameters_of(optimizer))

    undos = [session.for_each_optimizer(flip)]
    if name == "fused":
        undos.append(session.before_update(align))

    def undo() -> None:
        for take_back in undos:
            take_back()
        for reference, before in flipped.values():
            if (optimizer := reference()) is not None:
                restore(torch, optimizer, before)

    return undo


def can_flip(torch: Any, optimizer: Any, name: str) -> bool:
    """Return whether torch accepts that implementation, and the optimizer does not use it yet."""
    if name not in optimizer.defaults:
        return False
    for group in optimizer.param_groups:
        if group.get("fused") or group.get(name) or group.get("differentiable"):
            return False
        if name == "foreach" and isinstance(group["lr"], torch.Tensor):
            return False
    return name == "foreach" or all(can_fuse(torch, one) for one in parameters_of(optimizer))


def can_fuse(torch: Any, parameter: Any) -> bool:
    """Return whether a fused kernel accepts it: dense real numbers with a dense gradient."""
    if not parameter.is_floating_point() or getattr(parameter.grad, "is_sparse", False):
        return False
    like = torch.empty_like(parameter, device="meta")
    return bool(like.stride() == parameter.stride())


def restore(torch: Any, optimizer: Any, before: list[dict[str, Any]]) -> None:
    """Restore defaults and groups; a group that was added since gets the defaults."""
    defaults, *groups = before
    optimizer.defaults.update(defaults)
    for group, values in zip_longest(optimizer.param_groups, groups, fillvalue=defaults):
        group.update(values)
    count_steps_there(torch, optimizer)


def edit(settings: Settings) -> str:
    """Return the line that does it in the script."""
    name = settings["implementation"]
    return f"optimizer = torch.optim.AdamW(model.parameters(), lr=lr, {name}=True)  # or your own"


LEVER = Lever(
    name="fused_optimizer",
    title="Update all parameters in a few kernels: fused into one, or foreach.",
    relieves=("HOST_BOUND", "COMPUTE_BOUND"),
    phases=("optimizer",),
    preserves=Preserves.NUMERIC,
    when="An optimizer of torch has such an implementation and does not use it.",
    applies=applies,
    space=space,
    moment=Moment.LIVE,
    judged_by_cpu_time=True,
    apply=apply,
    edit=edit,
    costs="Foreach needs temporary memory, about as much as the weights.",
    source="https://docs.pytorch.org/docs/stable/optim.html",
)
