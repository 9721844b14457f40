"""Matrix products and convolutions in 16 bits; weights, updates and outputs stay float32.

Autocast is entered and left around each outermost call of a model. If it stayed open, its cache of
cast weights would outlive the update, and the model would train with stale weights.

Source: torch.amp, "Automatic Mixed Precision package"; Micikevicius et al., Mixed Precision
Training (2018), whose loss scaling fp16 needs (`loss_scaling.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..base import Facts, Lever, Moment, Preserves, Session, Settings, Undo
from ..tools.tensors import map_tensors
from .loss_scaling import scale_losses

HARDWARE = {
    ("cpu", "bf16"): ("amx_bf16", "avx512_bf16"),
    ("cpu", "fp16"): ("avx512_fp16",),
    ("cuda", "bf16"): ("sm_80",),
    ("cuda", "fp16"): ("sm_70",),
}
"""What a device must have (on CUDA: at least) to be faster in a dtype than in float32."""

ROUNDOFF = {"bf16": 2.0**-8, "fp16": 2.0**-11}
"""Unit roundoff: half the distance from 1 to the next number."""


def applies(facts: Facts) -> str | None:
    """Return why it does not apply, if so."""
    if facts.uses_autocast:
        return "The script uses autocast itself."
    if facts.uses_scaler:
        return "The script scales its loss itself, as scripts with autocast do."
    if any(dtype != "float32" for dtype in facts.parameter_dtypes or ()):
        return f"Not all parameters are float32: {', '.join(facts.parameter_dtypes or ())}."
    if not space(facts):
        return f"This {facts.device} is not known to be faster in 16 bits{missing(facts.device)}."
    return None


def space(facts: Facts) -> tuple[Settings, ...]:
    """Return the dtypes in which the device computes fast, as far as is known."""
    return tuple({"dtype": dtype} for dtype in ROUNDOFF if is_fast(facts, dtype))


def is_fast(facts: Facts, dtype: str) -> bool:
    """Return whether the device has what `HARDWARE` asks for."""
    wanted = HARDWARE.get((facts.device, dtype), ())
    if facts.capabilities is None:
        return bool(wanted)
    if facts.device != "cuda":
        return any(word in facts.capabilities for word in wanted)
    found = [int(word[3:]) for word in facts.capabilities if word[:3] == "sm_"]
    return any(one >= int(word[3:]) for word in wanted for one in found)


def missing(device: str) -> str:
    """Return in words what such a device would have."""
    words = [word for (one, _), words in HARDWARE.items() if one == device for word in words]
    return f": it has none of {', '.join(words)}" if words else ""


def apply(settings: Settings, session: Session) -> Undo:
    """Put autocast around each outermost call and, for fp16, scaling around each backward."""
    torch = session.torch
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[str(settings["dtype"])]

    def run(call: Callable[..., Any], model: Any, args: Any, kwargs: Any) -> Any:
        device = next(model.parameters()).device.type
        if torch.is_autocast_enabled(device):
            return call(model, *args, **kwargs)
        try:
            with torch.autocast(device, dtype=dtype):
                result = call(model, *args, **kwargs)
        finally:
            torch.clear_autocast_cache()  # leaving does not clear it inside another context
        return map_tensors(torch, result, widen)

    def widen(tensor: Any) -> Any:
        return tensor.float() if tensor.dtype == dtype else tensor

    undos = [session.wrap_calls(run)]
    if dtype is torch.float16:
        undos.append(scale_losses(session))

    def undo() -> None:
        for take_back in reversed(undos):
            take_back()

    return undo


def edit(settings: Settings) -> str:
    """Return the lines that do it in the script."""
    name = {"bf16": "bfloat16", "fp16": "float16"}[str(settings["dtype"])]
    lines = [
        f"with torch.autocast(inputs.device.type, dtype=torch.{name}):",
        "    outputs = model(inputs)",
        "outputs = outputs.float()",
    ]
    if name == "float16":
        lines.insert(0, "scaler = torch.amp.GradScaler(inputs.device.type)  # once")
        lines += [
            "scaler.scale(loss).backward()",
            "scaler.unscale_(optimizer)  # before gradients are clipped or logged",
            "scaler.step(optimizer)",
            "scaler.update()",
        ]
    return "\n".join(lines)


LEVER = Lever(
    name="autocast",
    title="Compute matmuls and convolutions in bf16 or fp16 instead of float32.",
    relieves=("COMPUTE_BOUND", "MEMORY_BANDWIDTH_BOUND", "MEMORY_CAPACITY_BOUND"),
    phases=("forward", "loss", "forward_and_loss", "backward"),
    preserves=Preserves.NUMERIC,
    roundoff=lambda settings: ROUNDOFF[str(settings["dtype"])],
    when="The parameters are float32, the device is fast in 16 bits, and the script does not use "
    "autocast itself.",
    applies=applies,
    space=space,
    moment=Moment.LIVE,
    judged_by_cpu_time=True,
    apply=apply,
    edit=edit,
    costs="The casts may make small models slower; an operator may refuse 16 bits; fp16 skips an "
    "update now and then, when its scale was too large.",
    source="https://docs.pytorch.org/docs/stable/amp.html",
)
