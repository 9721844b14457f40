"""Compiles for sizes that vary, where the script's torch.compile made graphs again and again.

A graph for one size is compiled again for another; after eight, torch runs a function eagerly. With
`dynamic=True` one graph serves all sizes. It is somewhat slower than one made for its size.

Source: https://docs.pytorch.org/docs/stable/torch.compiler_dynamic_shapes.html
"""

from __future__ import annotations

import functools
from typing import Any

from ..base import Facts, Lever, Moment, Preserves, Session, Settings, Undo
from ..tools.draws import numeric_without_draws

MIN_RECOMPILES = 2
"""One is how torch learns that a size varies."""


def applies(facts: Facts) -> str | None:
    """Return why it does not apply, if so."""
    if facts.uses_compile is False:
        return "The script does not use torch.compile."
    if facts.num_recompiles is not None and facts.num_recompiles < MIN_RECOMPILES:
        return "The script compiled nothing again, or only once, which is how torch learns sizes."
    return None


def apply(settings: Settings, session: Session) -> Undo:
    """Let each torch.compile of the script's make dynamic graphs, whatever it says of sizes."""
    torch = session.torch
    before = torch.compile

    @functools.wraps(before)
    def compile_dynamic(*args: Any, **kwargs: Any) -> Any:
        return before(*args, **{**kwargs, "dynamic": True})

    torch.compile = compile_dynamic
    return lambda: setattr(torch, "compile", before)


LEVER = Lever(
    name="dynamic_shapes",
    title="Let the script's torch.compile make one graph for sizes that vary.",
    relieves=("HOST_BOUND",),
    phases=("forward", "loss", "forward_and_loss", "backward", "compile"),
    preserves=Preserves.STATISTICAL,
    when=(
        "The script uses torch.compile, and functions were compiled again twice or more. It is "
        "NUMERIC where the model draws no random numbers."
    ),
    applies=applies,
    moment=Moment.STARTUP,
    class_here=numeric_without_draws,
    judged_by_cpu_time=True,
    apply=apply,
    edit=lambda settings: "model = torch.compile(model, dynamic=True)  # and your other arguments",
    costs="A graph for all sizes is slower than one for its size: where few sizes come, it loses. "
    "CUDA graphs are still recorded for each size.",
    source="https://docs.pytorch.org/docs/stable/torch.compiler_dynamic_shapes.html",
)
