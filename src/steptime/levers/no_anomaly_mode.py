"""Anomaly detection left off, although the script turns it on.

Autograd's anomaly detection notes the stack of each forward operator and searches each gradient for
NaN. It changes no number; without it, a NaN in a backward no longer raises an error. What the
script asks for is noted instead of done, and done when the lever is taken off.

Source: https://docs.pytorch.org/docs/stable/autograd.html#anomaly-detection and our own reading of
torch.autograd.anomaly_mode, whose classes all call `torch.set_anomaly_enabled`.
"""

from __future__ import annotations

from typing import Any

from ._switches import why_not_on
from .base import Facts, Lever, Moment, Preserves, Session, Settings, Undo


def applies(facts: Facts) -> str | None:
    """It applies where anomaly detection was on in most of the steps."""
    return why_not_on(facts, "anomaly_mode", "Anomaly detection is off.")


def apply(settings: Settings, session: Session) -> Undo:
    """Turn it off, and let the script's own calls change nothing."""
    torch = session.torch
    turn = torch.set_anomaly_enabled
    wanted = [(torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled())]

    def note(enabled: Any, check_nan: Any = True) -> None:  # noqa: FBT002 - as torch has it
        wanted[0] = (enabled, check_nan)

    def undo() -> None:
        torch.set_anomaly_enabled = turn
        turn(*wanted[0])

    turn(False, wanted[0][1])
    torch.set_anomaly_enabled = note
    return undo


def edit(settings: Settings) -> str:
    """Return what is to be taken out."""
    return (
        "torch.autograd.set_detect_anomaly(False)  # take out detect_anomaly(), Trainer(..., "
        "detect_anomaly=True) and the like"
    )


LEVER = Lever(
    name="no_anomaly_mode",
    title="Leave autograd's anomaly detection off.",
    relieves=("HOST_BOUND",),
    phases=("forward", "loss", "forward_and_loss", "backward"),
    preserves=Preserves.EXACT,
    when="The script leaves anomaly detection on while it trains.",
    applies=applies,
    space=lambda facts: ({},),
    moment=Moment.LIVE,
    judged_by_cpu_time=True,
    judged_beside_others=True,
    apply=apply,
    edit=edit,
    costs="A NaN in a backward no longer ends the run with the line that made it.",
    source="https://docs.pytorch.org/docs/stable/autograd.html#anomaly-detection",
)
