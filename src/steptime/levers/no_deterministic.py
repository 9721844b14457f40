"""Torch's free choice of algorithms, although the script asks for deterministic ones.

Deterministic algorithms for scatter, index and convolution are slower, and torch fills each new
memory with NaN in this mode. What the script asks for is noted instead of done, and done when the
lever is taken off. On a CPU most results stay equal from run to run anyway; sums are added up in
another order. The switch of cuDNN is untested on a device.

Source: https://docs.pytorch.org/docs/stable/notes/randomness.html.
"""

from __future__ import annotations

from typing import Any

from ._switches import why_not_on
from .base import Facts, Lever, Moment, Preserves, Session, Settings, Undo


def applies(facts: Facts) -> str | None:
    """It applies where deterministic algorithms were on in most of the steps."""
    return why_not_on(facts, "deterministic", "The script asks for no deterministic algorithms.")


def apply(settings: Settings, session: Session) -> Undo:
    """Turn both switches off, and let the script's own calls change nothing."""
    undos = (free_algorithms(session.torch), free_cudnn(session.torch))

    def undo() -> None:
        for take_back in undos:
            take_back()

    return undo


def free_algorithms(torch: Any) -> Undo:
    """Turn off `use_deterministic_algorithms`, which each way to ask for them ends in."""
    turn = torch._C._set_deterministic_algorithms
    wanted = [(torch.are_deterministic_algorithms_enabled(), is_warning_only(torch))]

    def note(mode: Any, *, warn_only: Any = False) -> None:
        wanted[0] = (mode, warn_only)

    def undo() -> None:
        torch._C._set_deterministic_algorithms = turn
        turn(wanted[0][0], warn_only=wanted[0][1])

    turn(False, warn_only=False)
    torch._C._set_deterministic_algorithms = note
    return undo


def is_warning_only(torch: Any) -> bool:
    """Return whether torch only warns where it has no deterministic algorithm."""
    return bool(torch.is_deterministic_algorithms_warn_only_enabled())


def free_cudnn(torch: Any) -> Undo:
    """Turn off `torch.backends.cudnn.deterministic`, an attribute of that module's class."""
    owner = type(torch.backends.cudnn)
    switch = vars(owner)["deterministic"]
    wanted = [torch.backends.cudnn.deterministic]

    def note(module: Any, value: Any) -> None:
        wanted[0] = value

    def undo() -> None:
        owner.deterministic = switch
        torch.backends.cudnn.deterministic = wanted[0]

    torch.backends.cudnn.deterministic = False
    owner.deterministic = property(lambda module: switch.__get__(module, owner), note)
    return undo


def edit(settings: Settings) -> str:
    """Return the lines that turn them off."""
    return (
        "torch.use_deterministic_algorithms(False)\n"
        "torch.backends.cudnn.deterministic = False  # and without CUBLAS_WORKSPACE_CONFIG"
    )


LEVER = Lever(
    name="no_deterministic",
    title="Let torch choose its algorithms instead of deterministic ones.",
    relieves=("COMPUTE_BOUND",),
    phases=(
        *("forward", "loss", "forward_and_loss", "backward"),
        *("gradient_processing", "optimizer", "other"),
    ),
    preserves=Preserves.NUMERIC,
    when="The script leaves deterministic algorithms on while it trains.",
    applies=applies,
    space=lambda facts: ({},),
    moment=Moment.LIVE,
    judged_by_cpu_time=True,
    judged_beside_others=True,
    apply=apply,
    edit=edit,
    costs="Two runs with the same seed no longer give the same bits on a device.",
    source="https://docs.pytorch.org/docs/stable/notes/randomness.html",
)
