"""GELU that a module writes out in single operators, computed by torch's fused kernel.

0.5 * x * (1 + tanh(...)), or the same with erf, is six to eight operators, each of which reads and
writes the whole tensor and keeps some of it for the backward. As one operator it is read and
written once. The classes are found by what they compute (`gelu_classes.py`), before the first call
of each model.

Source: Hendrycks and Gimpel, Gaussian Error Linear Units (2016); torch.nn.functional.gelu. To find
the classes by what they compute is our own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..base import Facts, Lever, Moment, Preserves, Session, Settings, Undo
from ..tools.owners import put_forward
from .gelu_classes import State, find_written, own_names, state_of


def applies(facts: Facts) -> str | None:
    """Return why it does not apply, if so."""
    if facts.device != "cpu":
        return f"It has not been tested on {facts.device}."
    if facts.uses_compile:
        return "The script compiles its model, and the compiler fuses what is written out."
    if facts.written_gelus is None or facts.written_gelus:
        return None
    return "No module that writes GELU out in single operators was seen."


def space(facts: Facts) -> tuple[Settings, ...]:
    """Return a switch, with the classes beside it, for whoever hands over the edit."""
    return ({"classes": ", ".join(facts.written_gelus)} if facts.written_gelus else {},)


def apply(settings: Settings, session: Session) -> Undo:
    """Compute such modules fused, from the next call of each model on."""
    torch = session.torch
    done: dict[type, Undo] = {}

    def act_on(model: Any) -> None:
        for owner, forms in find_written(torch, [model]).items():
            if owner not in done:
                done[owner] = fuse_in(torch, owner, forms)

    stop = session.for_each_model(act_on)

    def undo() -> None:
        for take_back in (stop, *done.values()):
            take_back()

    return undo


def fuse_in(torch: Any, owner: Any, forms: Mapping[State, str]) -> Undo:
    """Let the instances of a class compute GELU fused; return what takes it back."""
    original, own = owner.forward, own_names(torch)
    is_compiling, is_tracing = torch.compiler.is_compiling, torch.jit.is_tracing
    gelu, kinds = torch.nn.functional.gelu, (torch.Tensor, torch.nn.Parameter)
    dtypes = (torch.float32, torch.bfloat16, torch.float16, torch.float64)

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        if is_compiling() or is_tracing() or kwargs or len(args) != 1 or type(self) is not owner:
            return original(self, *args, **kwargs)
        (x,) = args
        is_plain = type(x) in kinds and x.is_cpu and x.dtype in dtypes
        state = state_of(self, own) if is_plain and x.layout is torch.strided else None
        form = None if state is None else forms.get(state)
        return original(self, x) if form is None else gelu(x, approximate=form)

    return put_forward(owner, forward)


LEVER = Lever(
    name="fused_gelu",
    title="Compute GELU that is written out in single operators by one fused kernel.",
    relieves=("COMPUTE_BOUND", "MEMORY_BANDWIDTH_BOUND", "HOST_BOUND"),
    phases=("forward", "forward_and_loss", "backward"),
    preserves=Preserves.NUMERIC,
    when=(
        "A model has activation modules that write GELU out, by tanh or erf, as minGPT's `NewGELU` "
        "and transformers' `NewGELUActivation` do. They are known by what they compute: results "
        "and gradients must be those of torch's own GELU, without branches, random numbers or "
        "stored values."
    ),
    applies=applies,
    space=space,
    moment=Moment.LIVE,
    judged_by_cpu_time=True,
    apply=apply,
    edit=lambda settings: (
        'nn.GELU(approximate="tanh")  # where 0.5 * x * (1 + tanh(...)) is written out\n'
        "nn.GELU()  # where it is written out with erf\n"
        '# transformers: activation_function="gelu_pytorch_tanh" in the config of gelu_new models'
    ),
    costs=(
        "A call of such a module takes about two microseconds more than one of `nn.GELU`, which is "
        "less than before. In bf16 and fp16 it rounds once, where the script rounds each operator."
    ),
    source="https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.gelu.html",
)
