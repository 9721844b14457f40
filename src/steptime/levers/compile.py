"""Models compiled by torch.compile while they train; evaluation stays as it is.

The compiled function is in a table of ours, never on the model, so checkpoints and copies hold what
they always held. Random numbers are drawn as without compiling (`fallback_random`), so dropout
drops the same elements.

Source: Ansel et al., PyTorch 2: Faster Machine Learning Through Dynamic Python Bytecode
Transformation and Graph Compilation (2024).
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from typing import Any

from .base import Facts, Lever, Moment, Preserves, Session, Settings, Undo

OPTIONS: dict[str, dict[str, Any]] = {
    "default": {"fallback_random": True},
    "reduce-overhead": {"fallback_random": True, "triton.cudagraphs": True},
}
"""What torch's modes of these names set, and the same random numbers; `mode` cannot say both."""

MAX_MODELS = 8
"""Compiled models that are kept; a script with a model for each fold would otherwise keep all."""

compiled_models: dict[tuple[int, str], Any] = {}
"""By id and mode; each holds its model, so its id is not reused. They are kept while the lever is
off, because switching it on again must not compile again."""


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
    """Return the modes; CUDA graphs, which reduce the overhead, exist on CUDA devices only."""
    modes = ("default", "reduce-overhead") if facts.device == "cuda" else ("default",)
    return tuple({"mode": mode} for mode in modes)


def apply(settings: Settings, session: Session) -> Undo:
    """Send outermost calls of models that train through their compiled form."""
    torch = session.torch
    mode = str(settings["mode"])
    takes_as_it_is = (torch.jit.ScriptModule, torch.fx.GraphModule)

    def run(call: Callable[..., Any], model: Any, args: Any, kwargs: Any) -> Any:
        is_compiled = getattr(model, "_compiled_call_impl", None) or hasattr(model, "_orig_mod")
        if is_compiled or not model.training or isinstance(model, takes_as_it_is):
            return call(model, *args, **kwargs)
        return call(compiled(torch, model, mode), *args, **kwargs)

    return session.wrap_calls(run)


def compiled(torch: Any, model: Any, mode: str) -> Any:
    """Return the compiled form of a model, which is compiled when it is first called."""
    key = (id(model), mode)
    if key not in compiled_models:
        while len(compiled_models) >= MAX_MODELS:
            del compiled_models[next(iter(compiled_models))]
        names = set(vars(model))
        compiled_models[key] = torch.compile(model, options=OPTIONS[mode])
        for name in set(vars(model)) - names:  # torch marks the model through its wrapper
            delattr(model, name)
    return compiled_models[key]


def edit(settings: Settings) -> str:
    """Return the lines that do it in the script."""
    options = str(OPTIONS[str(settings["mode"])]).replace("'", '"')
    return (
        f"compiled = torch.compile(model, options={options})  # once\n"
        "outputs = compiled(inputs)  # in training; save and evaluate `model` as before"
    )


LEVER = Lever(
    name="compile",
    title="Compile models with torch.compile where they train.",
    relieves=("HOST_BOUND", "COMPUTE_BOUND", "MEMORY_BANDWIDTH_BOUND"),
    phases=("forward", "loss", "forward_and_loss", "backward"),
    preserves=Preserves.NUMERIC,
    when="The script does not use torch.compile itself, and a C++ compiler is installed.",
    applies=applies,
    space=space,
    moment=Moment.LIVE,
    judged_by_cpu_time=True,
    apply=apply,
    edit=edit,
    costs="Compiling takes seconds to minutes at the start, and again for new shapes; beyond "
    "torch's limit a model runs uncompiled, which is counted.",
    source="https://docs.pytorch.org/docs/stable/generated/torch.compile.html",
)
