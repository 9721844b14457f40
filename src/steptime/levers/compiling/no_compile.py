"""Runs eagerly what the script compiles with torch.compile, where that costs more than it gives.

Compiling costs its time, and each call checks whether a graph still fits: with many graphs, breaks
or sizes, that may outweigh what the graphs save. Torch's own switch turns it off and on again
between two steps; what was compiled is kept.

Source: https://docs.pytorch.org/docs/stable/generated/torch.compiler.set_stance.html
"""

from __future__ import annotations

from ..base import Facts, Lever, Moment, Preserves, Session, Settings, Undo
from ..tools.draws import numeric_without_draws
from ..tools.versions import is_before

FIRST_WITH_STANCES = (2, 6)


def applies(facts: Facts) -> str | None:
    """Return why it does not apply, if so."""
    if facts.uses_compile is False:
        return "The script does not use torch.compile."
    if is_before(facts.torch_version, FIRST_WITH_STANCES):
        return f"Torch can be told so from 2.6 on, but this is {facts.torch_version}."
    return None


def apply(settings: Settings, session: Session) -> Undo:
    """Let nothing run compiled; what it returns goes back to the script's own choice."""
    stance = session.torch.compiler.set_stance("force_eager")
    return lambda: stance.__exit__(None, None, None)


LEVER = Lever(
    name="no_compile",
    title="Run eagerly what the script compiles with torch.compile.",
    relieves=("HOST_BOUND",),
    phases=("forward", "loss", "forward_and_loss", "backward", "optimizer", "compile"),
    preserves=Preserves.STATISTICAL,
    when=(
        "The script uses torch.compile, and torch is 2.6 or newer. It is NUMERIC where the model "
        "draws no random numbers: compiled dropout draws others."
    ),
    applies=applies,
    moment=Moment.LIVE,
    class_here=numeric_without_draws,
    judged_by_cpu_time=True,
    apply=apply,
    edit=lambda settings: (
        'torch.compiler.set_stance("force_eager")  # at the start; or take torch.compile out'
    ),
    costs="What the compiler had fused runs as single operators again, in evaluations too, and "
    "needs the memory that this saved.",
    source="https://docs.pytorch.org/docs/stable/generated/torch.compiler.set_stance.html",
)
