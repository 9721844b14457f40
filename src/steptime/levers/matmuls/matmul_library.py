"""Matmuls of float32 tensors by oneDNN, where torch takes MKL, which is slow on AMD's processors.

Torch multiplies float32 matrices on a CPU with Intel's MKL. On AMD's Zen it takes twice the time
that oneDNN takes, which torch brings as well and uses for convolutions and bf16. The kernels of
`aten::mm` and `aten::addmm` are put behind the dispatcher, so that the backward has them, too.

Source: https://docs.pytorch.org/docs/stable/library.html (`torch.library.Library.impl`) and our own
measurement: x2.1 to x2.3 for products of 256 to 43,000 columns on an EPYC (Zen 4), one thread.
"""

from __future__ import annotations

import inspect
from typing import Any

from ..base import Facts, Lever, Moment, Preserves, Session, Settings, Undo

VENDOR = "authenticamd"
"""As /proc/cpuinfo has it; on Intel's processors MKL is as fast."""

SAVED = 0.55
"""Of the time in matmuls, at most."""


def applies(facts: Facts) -> str | None:
    """Return why it does not apply, if so."""
    if facts.device != "cpu":
        return f"MKL multiplies on a CPU, and the model is on {facts.device}."
    if facts.capabilities is not None and VENDOR not in facts.capabilities:
        return "MKL is slow on AMD's processors, and this is none."
    if facts.uses_autocast:
        return "The script uses autocast, whose matmuls are oneDNN's already."
    if facts.parameter_dtypes and "float32" not in facts.parameter_dtypes:
        return f"No parameter is float32: {', '.join(facts.parameter_dtypes)}."
    return None


def saves(facts: Facts) -> float | None:
    """Return what oneDNN can save of a step at most."""
    return None if facts.product_fraction is None else SAVED * facts.product_fraction


def multiply_by_onednn(torch: Any) -> Any:
    """Compute large matmuls of float32 on the CPU by oneDNN, until the result is destroyed."""
    import warnings

    linear = torch.ops.mkldnn._linear_pointwise.default

    def is_plain(x: Any) -> bool:
        strides = x.stride()
        return x.dtype is torch.float32 and x.dim() == 2 and 1 in strides and 0 not in strides

    def is_large(a: Any, b: Any) -> bool:
        if not (is_plain(a) and is_plain(b)) or a.shape[1] != b.shape[0]:
            return False
        if a.stride(1) != 1 and b.shape[1] < 192:
            return False  # it copies a transposed left factor, which takes as long
        return bool(a.shape[0] * a.shape[1] * b.shape[1] >= 1 << 20)  # less is not worth the call

    def mm(a: Any, b: Any) -> Any:
        if is_large(a, b):
            return linear(a, b.t(), None, "none", [], "")
        return torch.mm(a, b, out=a.new_empty(0))  # torch's own kernel

    def addmm(bias: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
        is_usual = beta == alpha == 1 and bias.dtype is torch.float32 and bias.is_contiguous()
        if is_usual and is_large(a, b) and bias.shape == (b.shape[1],):
            return linear(a, b.t(), bias, "none", [], "")
        return torch.addmm(bias, a, b, beta=beta, alpha=alpha, out=a.new_empty(0))

    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says once that a kernel is replaced
        library.impl("mm", mm, "CPU")
        library.impl("addmm", addmm, "CPU")
    return library


def apply(settings: Settings, session: Session) -> Undo:
    """Multiply by oneDNN from here on, where this torch has it."""
    torch = session.torch
    has_it = hasattr(torch.ops.mkldnn, "_linear_pointwise")
    if not (has_it and torch.backends.mkldnn.is_available()):
        return lambda: None
    destroy: Undo = multiply_by_onednn(torch)._destroy
    return destroy


def function_lines() -> str:
    """Return `multiply_by_onednn` as a script has it, without types."""
    lines = inspect.getsource(multiply_by_onednn)
    for word in (": Any", " -> Any", " -> bool"):
        lines = lines.replace(word, "")
    return lines


def edit(settings: Settings) -> str:
    """Return the function and its call."""
    return f"{function_lines()}\n\nlibrary = multiply_by_onednn(torch)"


LEVER = Lever(
    name="matmul_library",
    title="Compute matmuls of float32 tensors by oneDNN, in place of MKL.",
    relieves=("COMPUTE_BOUND",),
    phases=("forward", "loss", "forward_and_loss", "backward"),
    preserves=Preserves.NUMERIC,
    when=(
        "The processor is AMD's, there are float32 parameters, and the script does not use "
        "autocast. Products of fewer than a million multiplications stay as they are."
    ),
    applies=applies,
    saves=saves,
    moment=Moment.LIVE,
    judged_by_cpu_time=True,
    apply=apply,
    edit=edit,
    costs=(
        "Nothing is rounded more than before. Small products take two microseconds longer, as each "
        "passes through Python. Code that torch compiled keeps MKL."
    ),
    source="https://docs.pytorch.org/docs/stable/library.html#torch.library.Library.impl",
)
