"""Models compiled by torch.compile while they train, whole or block by block.

Evaluation stays as it is. The compiled form of a model is in a table of ours, never on it, so
checkpoints and copies hold what they always held; blocks have theirs only while a call or backward
lasts, in the place that torch leaves out of checkpoints. Random numbers are drawn as without
compiling (`fallback_random`), so dropout drops the same elements.

Source: Ansel et al., PyTorch 2: Faster Machine Learning Through Dynamic Python Bytecode
Transformation and Graph Compilation (2024); "Reducing torch.compile cold start compilation time
with regional compilation" (https://docs.pytorch.org/tutorials/recipes/regional_compilation.html).
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from typing import Any

from ..base import Facts, Lever, Moment, Preserves, Session, Settings, Undo
from ..tools.versions import is_before
from .compiled import kept, kept_forms, switched_on, unmark

GRAPHS = {"triton.cudagraphs": True}
TUNED = {"max_autotune": True, "coordinate_descent_tuning": True}
QUIET = {"autotune_num_choices_displayed": 0}
"""Else torch prints what it tried; older torch has no such option."""

WAYS: dict[str, dict[str, Any]] = {
    "default": {"options": {"fallback_random": True}},
    "reduce-overhead": {"options": {"fallback_random": True, **GRAPHS}},
    "max-autotune": {"options": {"fallback_random": True, **GRAPHS, **TUNED}},
    "cudagraphs": {"backend": "cudagraphs"},
}
"""What torch.compile is given. Torch's modes of these names set the same options, but cannot also
keep the random numbers. `cudagraphs` records the eager kernels, so it compiles none."""

FIRST_WITH_SHARED = (2, 5)
"""From here on, torch passes weights into graphs; before, each block had its own."""


def applies(facts: Facts) -> str | None:
    """Return why it does not apply, if so."""
    if facts.uses_compile:
        return "The script uses torch.compile itself."
    if facts.device not in ("cpu", "cuda"):
        return f"It has not been tested on {facts.device}."
    compiler = os.environ.get("CXX") or ("clang++" if sys.platform == "darwin" else "g++")
    if shutil.which(compiler.split()[0]) is None:
        return f"Torch needs a C++ compiler, but {compiler} was not found (install it, or set CXX)."
    return None


def space(facts: Facts) -> tuple[Settings, ...]:
    """Return what is compiled soonest first: blocks, the model; CUDA graphs; searched kernels."""
    modes = ["default"]
    if facts.device == "cuda":  # untested on a device; on a CPU, searched kernels lost
        modes += ["cudagraphs", "reduce-overhead", "max-autotune"]
    whole: list[Settings] = [{"mode": mode} for mode in modes]
    if facts.num_repeated_blocks and not is_before(facts.torch_version, FIRST_WITH_SHARED):
        whole.insert(0, {"mode": "default", "scope": "blocks"})
    return tuple(whole)


def apply(settings: Settings, session: Session) -> Undo:
    """Send outermost calls of models that train through their compiled form."""
    torch = session.torch
    mode, scope = str(settings["mode"]), str(settings.get("scope", "model"))
    ways = quietly(torch, WAYS[mode]) if mode == "max-autotune" else WAYS[mode]
    takes_as_it_is = (torch.jit.ScriptModule, torch.fx.GraphModule)

    def is_left(model: Any) -> bool:
        is_compiled = getattr(model, "_compiled_call_impl", None) or hasattr(model, "_orig_mod")
        return bool(is_compiled or not model.training or isinstance(model, takes_as_it_is))

    def run(call: Callable[..., Any], model: Any, args: Any, kwargs: Any) -> Any:
        if is_left(model):
            return call(model, *args, **kwargs)
        _, form, parameters = kept(torch, model, (scope, mode), ways)
        try:
            if scope == "model":
                return call(form, *args, **kwargs)
            with switched_on(form):
                return call(model, *args, **kwargs)
        finally:
            unmark(parameters)

    def run_backward(call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        # Checkpointed blocks are called again here, and must save what they saved before.
        known = [one[1] for key, one in kept_forms.items() if key[1:] == (scope, mode)]
        with switched_on([each for calls in known for each in calls]):
            return call(*args, **kwargs)

    undo = session.wrap_calls(run)
    undo_backward = None if scope == "model" else session.wrap_backward(run_backward)

    def undo_all() -> None:
        undo()
        if undo_backward is not None:
            undo_backward()

    return undo_all


def quietly(torch: Any, ways: dict[str, Any]) -> dict[str, Any]:
    """Return what torch.compile is given so that it prints nothing of its search."""
    known = torch._inductor.list_options()
    return {"options": {**ways["options"], **{k: v for k, v in QUIET.items() if k in known}}}


def arguments(mode: str) -> str:
    """Return what torch.compile is given, as it stands in a call."""
    return ", ".join(f"{name}={value!r}" for name, value in WAYS[mode].items()).replace("'", '"')


def edit(settings: Settings) -> str:
    """Return the lines that do it in the script."""
    words = arguments(str(settings["mode"]))
    if settings.get("scope") == "blocks":
        return (
            "for block in model.layers:  # or whatever holds them; once, before training\n"
            f"    block.compile({words})"
        )
    return (
        f"compiled = torch.compile(model, {words})  # once\n"
        "outputs = compiled(inputs)  # in training; save and evaluate `model` as before"
    )


LEVER = Lever(
    name="compile",
    title="Compile models with torch.compile where they train, whole or block by block.",
    relieves=("HOST_BOUND", "COMPUTE_BOUND", "MEMORY_BANDWIDTH_BOUND"),
    phases=("forward", "loss", "forward_and_loss", "backward"),
    preserves=Preserves.NUMERIC,
    when="The script does not use torch.compile itself, and a C++ compiler is installed. Blocks "
    "are compiled by themselves where the model repeats some of one form.",
    applies=applies,
    space=space,
    saves=lambda facts: 1.0 - (facts.product_fraction or 0.0),  # it calls the same products
    moment=Moment.LIVE,
    judged_by_cpu_time=True,
    apply=apply,
    edit=edit,
    costs="Compiling takes seconds to minutes at the start, and again for new shapes; beyond "
    "torch's limit a model runs uncompiled, which is counted.",
    source="https://docs.pytorch.org/docs/stable/generated/torch.compile.html",
)
