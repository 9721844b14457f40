"""Zeros instead of denormal numbers, which many CPUs compute far more slowly.

A denormal is a number too small for a normal float (below 1.2e-38 in float32). States that decay,
such as moments of weights without gradients, pass through them for hundreds of steps. The setting
belongs to a thread; threads that are made later inherit it, so it is set before the script makes
any.

Source: https://docs.pytorch.org/docs/stable/generated/torch.set_flush_denormal.html; Intel 64 and
IA-32 Architectures Software Developer's Manual, volume 1, 11.6.3 (MXCSR: DAZ, FTZ).
"""

from __future__ import annotations

from .base import Facts, Lever, Moment, Preserves, Session, Settings, Undo

MIN_FRACTION = 1e-3
"""One denormal in a thousand numbers: at 100 to 200 cycles each it then takes a tenth of the time
of a pass over them, which is memory-bound or a few cycles a number."""


def applies(facts: Facts) -> str | None:
    """It applies where weights, gradients or states hold denormal numbers."""
    if facts.device != "cpu":
        return "The arithmetic runs on the device, where denormals are not slower."
    if facts.denormal_fraction is None:
        return "It was not observed whether numbers are denormal."
    if facts.denormal_fraction < MIN_FRACTION:
        return f"Only {facts.denormal_fraction:.2%} of the numbers are denormal."
    return None


def apply(settings: Settings, session: Session) -> Undo:
    """Set it for this thread and those that it makes.

    The result turns it off for this thread only: torch does not say what it was before.

    Raises:
        RuntimeError: this CPU cannot.
    """
    torch = session.torch
    if not torch.set_flush_denormal(True):
        raise RuntimeError("this CPU cannot flush denormal numbers to zero")
    return lambda: torch.set_flush_denormal(False)


LEVER = Lever(
    name="flush_denormal",
    title="Take numbers that are too small for a normal float as zeros.",
    relieves=("COMPUTE_BOUND",),
    phases=(
        *("forward", "loss", "forward_and_loss", "backward"),
        *("gradient_processing", "optimizer", "other"),
    ),
    preserves=Preserves.NUMERIC,
    when="On the CPU, where weights, gradients or states of the optimizer hold denormal numbers.",
    applies=applies,
    space=lambda facts: ({},),
    moment=Moment.STARTUP,
    judged_by_cpu_time=True,
    apply=apply,
    edit=lambda settings: "torch.set_flush_denormal(True)  # before the first operator",
    costs="NumPy and Python, too, then take such numbers as zeros.",
    source="https://docs.pytorch.org/docs/stable/generated/torch.set_flush_denormal.html",
)
