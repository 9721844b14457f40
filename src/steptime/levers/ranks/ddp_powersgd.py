"""Exchange gradients as products of two thin matrices (PowerSGD), after a warm-up without.

Each rank sends rank x (rows + columns) numbers of a matrix in place of rows x columns, and keeps
what that leaves out for its next step (error feedback). Vectors, and matrices that would not become
half as small, are exchanged whole. The compression and its state are torch's own.

Source: Vogels et al., PowerSGD: Practical Low-Rank Gradient Compression for Distributed
Optimization (2019, arXiv 1905.13727); torch.distributed.algorithms.ddp_comm_hooks.
"""

from __future__ import annotations

import weakref
from importlib import import_module
from typing import Any

from ..base import Facts, Lever, Moment, Preserves, Session, Settings, Undo
from .ddp import find_ddp, why_no_hook

RANKS = (4, 2, 1)
"""The mildest compression first; torch's documentation names 1 to 4 as usual."""

WARMUP_STEPS = 1000
"""torch's default. Early gradients are those that an approximation harms most."""

LEAST_WARMUP = 2
"""DDP divides gradients into buckets again after its first step, and the state is by bucket."""

EPSILON = 1e-8
"""Added to the length of columns, so that gradients of zeros stay numbers."""


def applies(facts: Facts) -> str | None:
    """Return why it does not apply, if so."""
    reason = why_no_hook(
        facts, "With gloo, ranks may exchange several buckets in other orders, and so fail."
    )
    if reason is not None:
        return reason
    if facts.uses_scaler:
        return "A gradient scaler's steps that overflow would stay in the error that ranks keep."
    return None


def space(facts: Facts) -> tuple[Settings, ...]:
    """Return ranks of the matrices, with torch's warm-up."""
    return tuple({"rank": rank, "warmup_steps": WARMUP_STEPS} for rank in RANKS)


def apply(settings: Settings, session: Session) -> Undo:
    """Register torch's hook before the first call of each DistributedDataParallel without one.

    Raises:
        ValueError: the warm-up is shorter than two steps.
    """
    torch, warmup = session.torch, int(settings["warmup_steps"])
    if warmup < LEAST_WARMUP:
        raise ValueError(f"`warmup_steps` must be {LEAST_WARMUP} or more, got {warmup}")
    hooks = import_module("torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook")
    changed: weakref.WeakSet[Any] = weakref.WeakSet()

    def register(model: Any) -> None:
        ddp = find_ddp(torch, model)
        if ddp is not None and not ddp._comm_hooks and ddp not in changed:
            changed.add(ddp)
            state = hooks.PowerSGDState(
                ddp.process_group,
                matrix_approximation_rank=int(settings["rank"]),
                start_powerSGD_iter=warmup,
                orthogonalization_epsilon=EPSILON,
            )
            ddp.register_comm_hook(state, hooks.powerSGD_hook)
            session.count("changed")

    return session.for_each_model(register)


def edit(settings: Settings) -> str:
    """Return the lines that do it in the script."""
    return (
        "from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as powersgd\n\n"
        f"state = powersgd.PowerSGDState(\n"
        f"    None, matrix_approximation_rank={settings['rank']}, "
        f"start_powerSGD_iter={settings['warmup_steps']}, orthogonalization_epsilon={EPSILON}\n"
        ")\n"
        "model.register_comm_hook(state, powersgd.powerSGD_hook)  # once, before training"
    )


LEVER = Lever(
    name="ddp_powersgd",
    title="Exchange gradients between ranks as low-rank products (PowerSGD), after a warm-up.",
    relieves=("COMMUNICATION_BOUND",),
    phases=("backward", "communication"),
    preserves=Preserves.NOTHING,
    when="Several ranks exchange float32 gradients by DistributedDataParallel and NCCL, without a "
    "communication hook of the script's and without a gradient scaler. It changes the training, "
    "so it is not tried unless that is allowed, and not kept without proof over seeds.",
    applies=applies,
    space=space,
    moment=Moment.STARTUP,
    apply=apply,
    edit=edit,
    costs="A copy of all gradients for the error, and two small products a matrix. It begins after "
    "the warm-up, about a tenth of the steps and no fewer than those of a warm-up of the rate, so "
    "set `warmup_steps` in the recipe. What ranks keep is not in checkpoints. Tested with gloo "
    "and one bucket alone, where it is not offered, and not between devices yet.",
    source="https://docs.pytorch.org/docs/stable/ddp_comm_hooks.html",
)
