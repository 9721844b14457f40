"""Matrix products of float32 tensors in bf16 (CPU) or TF32 (CUDA); all else stays float32.

On a CPU it affects only matrix products: with their own switch, convolutions gained 4 % or nothing
and recurrent layers gained nothing, so those are left as they are.

Source: torch.set_float32_matmul_precision; NVIDIA, "Accelerating AI Training with NVIDIA TF32
Tensor Cores" (2021).
"""

from __future__ import annotations

from typing import Any

from ..base import Facts, Lever, Moment, Preserves, Session, Settings, Undo

BF16_HARDWARE = ("amx_bf16", "avx512_bf16")

FIRST_TF32 = 80
"""The compute capability of the first devices with TF32 [major and minor digit]."""

ROUNDOFF = {"medium": 2.0**-8, "high": 2.0**-11}
"""The unit roundoff of bf16 and of TF32."""


def applies(facts: Facts) -> str | None:
    """Return why it does not apply, if so."""
    if facts.uses_autocast:
        return "The script uses autocast, whose matmuls already run in 16 bits."
    if facts.parameter_dtypes and "float32" not in facts.parameter_dtypes:
        return f"No parameter is float32: {', '.join(facts.parameter_dtypes)}."
    if facts.matmul_precision not in (None, "highest"):
        return f"The script sets the precision of matmul itself: {facts.matmul_precision}."
    if not space(facts):
        wanted = {"cuda": ": it has no TF32 (sm_80)", "cpu": ": it has no bf16 (amx, avx512)"}
        return f"This {facts.device} has no faster matmul{wanted.get(facts.device, '')}."
    return None


def space(facts: Facts) -> tuple[Settings, ...]:
    """Return TF32 on a CUDA device, and bf16 on a CPU, where `high` does nothing."""
    if facts.capabilities is None:
        known = {"cuda": ({"precision": "high"},), "cpu": ({"precision": "medium"},)}
        return known.get(facts.device, ())
    if facts.device == "cuda":
        found = [int(word[3:]) for word in facts.capabilities if word[:3] == "sm_"]
        return ({"precision": "high"},) if any(sm >= FIRST_TF32 for sm in found) else ()
    if facts.device == "cpu" and any(word in facts.capabilities for word in BF16_HARDWARE):
        return ({"precision": "medium"},)
    return ()


def apply(settings: Settings, session: Session) -> Undo:
    """Set the precision; the result restores it and each switch that it moves."""
    torch = session.torch
    # Torch 2.9 and later have one for each operator; the old switch does not restore `none`.
    switches = [
        (owner.matmul, "fp32_precision", owner.matmul.fp32_precision)
        for owner in (torch.backends.mkldnn, torch.backends.cuda)
        if hasattr(getattr(owner, "matmul", None), "fp32_precision")
    ]
    precision = read_precision(torch)
    if torch.backends.cudnn.is_available():  # for convolutions; on unless the script says otherwise
        switches.append((torch.backends.cudnn, "allow_tf32", torch.backends.cudnn.allow_tf32))
        torch.backends.cudnn.allow_tf32 = True
    torch.set_float32_matmul_precision(settings["precision"])

    def undo() -> None:
        if precision is not None:
            torch.set_float32_matmul_precision(precision)
        for owner, name, value in switches:
            setattr(owner, name, value)

    return undo


def read_precision(torch: Any) -> str | None:
    """Return the old switch; None if the script set the new ones, where torch refuses to say."""
    try:
        return str(torch.get_float32_matmul_precision())
    except RuntimeError:
        return None


def edit(settings: Settings) -> str:
    """Return the line that does it in the script."""
    return f'torch.set_float32_matmul_precision("{settings["precision"]}")'


LEVER = Lever(
    name="matmul_precision",
    title="Compute matmuls of float32 tensors in bf16 (CPU) or TF32 (CUDA).",
    relieves=("COMPUTE_BOUND",),
    phases=("forward", "loss", "forward_and_loss", "backward"),
    preserves=Preserves.NUMERIC,
    roundoff=lambda settings: ROUNDOFF[str(settings["precision"])],
    when="There are float32 parameters, the device has bf16 or TF32 products, and the script "
    "neither uses autocast nor sets the precision.",
    applies=applies,
    space=space,
    moment=Moment.LIVE,
    judged_by_cpu_time=True,
    apply=apply,
    edit=edit,
    costs="No memory. Evaluation, and whatever else multiplies matrices, is rounded too.",
    source="https://docs.pytorch.org/docs/stable/generated/torch.set_float32_matmul_precision.html",
)
