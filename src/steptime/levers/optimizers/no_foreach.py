"""The optimizer updates one weight after another, without temporary copies of all of them.

On a device, torch's optimizers update all weights at once by default (foreach). Their temporary
results are then as large as all weights together, once or twice; where a step holds most in the
optimizer, that is its peak. One after another, they are as large as the largest weight.

Source: torch.optim, "Algorithms": foreach uses about as much more memory as the weights.
"""

from __future__ import annotations

import weakref
from typing import Any

from ..base import Facts, Lever, Moment, OptimizerFacts, Preserves, Session, Settings, Undo
from ..tools.memory_room import why_memory_suffices
from ..tools.optimizer_layout import count_steps_there
from .fused_optimizer import HAVE_FOREACH, restore

OPTIMIZER = "optimizer"


def applies(facts: Facts) -> str | None:
    """It applies where an optimizer works on all weights at once and sets the peak."""
    if facts.optimizers is None:
        return "Which optimizers the script uses was not observed."
    if not any(uses_foreach(one, facts.device) for one in facts.optimizers):
        return "No optimizer of torch updates all weights at once by foreach."
    if facts.peak_phase not in (None, OPTIMIZER):
        return f"A step holds most in {facts.peak_phase}, and not in the optimizer."
    return why_memory_suffices(facts)


def uses_foreach(optimizer: OptimizerFacts, device: str) -> bool:
    """Return whether it uses foreach: the script says so, or it is the default on a device."""
    if optimizer.name not in HAVE_FOREACH or optimizer.is_fused:
        return False
    return bool(optimizer.is_foreach) or (optimizer.is_foreach is None and device != "cpu")


def frees(facts: Facts, settings: Settings) -> int | None:
    """Return the temporary results at the fullest moment of a step, if that is in the optimizer."""
    if facts.peak_bytes is None:
        return None
    return facts.peak_bytes.get("temporaries", 0) if facts.peak_phase == OPTIMIZER else 0


def apply(settings: Settings, session: Session) -> Undo:
    """Switch foreach off in each optimizer that is not fused, before its next step."""
    torch = session.torch
    flipped: list[tuple[weakref.ref[Any], list[dict[str, Any]]]] = []

    def flip(optimizer: Any) -> None:
        holders = (optimizer.defaults, *optimizer.param_groups)
        if "foreach" not in optimizer.defaults or any(one.get("fused") for one in holders):
            return
        flipped.append((weakref.ref(optimizer), [{"foreach": o.get("foreach")} for o in holders]))
        for holder in holders:
            holder["foreach"] = False
        count_steps_there(torch, optimizer)

    take_back = session.for_each_optimizer(flip)

    def undo() -> None:
        take_back()
        for reference, before in flipped:
            if (optimizer := reference()) is not None:
                restore(torch, optimizer, before)

    return undo


LEVER = Lever(
    name="no_foreach",
    title="Update one weight after another, without temporary results as large as all of them.",
    relieves=("MEMORY_CAPACITY_BOUND",),
    phases=("optimizer",),
    preserves=Preserves.NUMERIC,
    when="Memory is short, an optimizer of torch updates all weights at once (foreach), and a step "
    "holds most in the optimizer, as far as that is known.",
    applies=applies,
    moment=Moment.LIVE,
    judged_by_cpu_time=True,
    frees=frees,
    apply=apply,
    edit=lambda settings: (
        "optimizer = torch.optim.AdamW(model.parameters(), lr=lr, foreach=False)  # or your own"
    ),
    costs="More kernels for each update: slower where there are many small weights. A fused "
    "optimizer needs no such memory either and is quicker: see fused_optimizer.",
    source="https://docs.pytorch.org/docs/stable/optim.html",
)
