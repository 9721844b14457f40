"""bf16 by autocast, chosen by module: what is sensitive stays float32, embeddings may go lower.

Rounding hurts most in the first layer, which sees the inputs, in the last one, which makes the
logits, and in normalizations. Those compute in float32, and all between them in bf16. Embeddings in
bf16 make what passes from layer to layer bf16 as well. Weights and updates stay float32 everywhere.

Source: Micikevicius et al., Mixed Precision Training (2018), section 3.3; Shoeybi et al.,
Megatron-LM (2019); torch.amp, "Autocast Op Reference".
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

from ..base import Facts, Lever, Moment, Preserves, Session, Settings, Undo
from ..tools.inner_calls import Calls, call_module, called_instead
from ..tools.tensors import map_tensors
from . import autocast

BF16 = {"dtype": "bf16"}


def space(facts: Facts) -> tuple[Settings, ...]:
    """Return what may stay float32, and what may go lower beside it."""
    if not autocast.is_fast(facts, "bf16"):
        return ()
    return {"float32": "ends"}, {"float32": "ends_and_norms"}, {"float32": "none", "low": True}


def in_float32(torch: Any, module: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a module outside autocast, on float32."""

    def widen(tensor: Any) -> Any:
        return tensor.float() if tensor.dtype is torch.bfloat16 else tensor

    with torch.autocast(next(module.parameters()).device.type, enabled=False):
        args, kwargs = map_tensors(torch, args, widen), map_tensors(torch, kwargs, widen)
        return call_module(module, *args, **kwargs)


def in_bf16(torch: Any, module: Any, *args: Any, **kwargs: Any) -> Any:
    """Call an embedding, and round what it gives."""
    return call_module(module, *args, **kwargs).to(torch.bfloat16)


def calls_of(torch: Any, model: Any, settings: Settings) -> Calls:
    """Return the modules of a model that do not just follow autocast, with their calls."""
    nn = torch.nn
    modules = [
        one for one in model.modules() if next(one.parameters(recurse=False), None) is not None
    ]
    layers = [one for one in modules if isinstance(one, (nn.Linear, nn.modules.conv._ConvNd))]
    kinds = (nn.LayerNorm, nn.GroupNorm, nn.modules.batchnorm._NormBase)
    kinds += (nn.RMSNorm,) if hasattr(nn, "RMSNorm") else ()
    kept = []
    if settings["float32"] != "none" and layers:
        kept = [layers[0], layers[-1]] if len(layers) > 1 else layers
    if settings["float32"] == "ends_and_norms":
        kept += [one for one in modules if isinstance(one, kinds)]
    calls: Calls = [(one, partial(in_float32, torch, one)) for one in kept]
    if settings.get("low"):
        found = [one for one in modules if isinstance(one, (nn.Embedding, nn.EmbeddingBag))]
        calls += [(one, partial(in_bf16, torch, one)) for one in found]
    return calls


def apply(settings: Settings, session: Session) -> Undo:
    """Put autocast around calls of models, and other calls into some of their modules."""
    torch = session.torch
    known: weakref.WeakKeyDictionary[Any, Calls] = weakref.WeakKeyDictionary()

    def run(call: Callable[..., Any], model: Any, args: Any, kwargs: Any) -> Any:
        if torch.is_autocast_enabled(next(model.parameters()).device.type):
            return call(model, *args, **kwargs)
        if model not in known:
            known[model] = calls_of(torch, model, settings)
        with called_instead(known[model]):
            return call(model, *args, **kwargs)

    def run_backward(call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        # Checkpointed modules are called again here, and must compute as they did before.
        with called_instead([one for calls in list(known.values()) for one in calls]):
            return call(*args, **kwargs)

    undos = [session.wrap_calls(run), session.wrap_backward(run_backward)]
    undos.append(autocast.apply(BF16, session))

    def undo() -> None:
        for take_back in reversed(undos):
            take_back()

    return undo


def edit(settings: Settings) -> str:
    """Return the lines that do it in the script."""
    lines = ["with torch.autocast(inputs.device.type, dtype=torch.bfloat16):"]
    if settings.get("low"):
        lines.append("    x = self.embedding(tokens).bfloat16()  # what follows stays bf16")
        return "\n".join([*lines, "    x = self.layers(x)"])
    lines += [
        "    ...",
        "    with torch.autocast(inputs.device.type, enabled=False):",
        "        logits = self.head(x.float())  # and the first layer"
        + (", and the norms" if settings.get("float32") == "ends_and_norms" else ""),
    ]
    return "\n".join(lines)


LEVER = Lever(
    name="module_precision",
    title="Compute in bf16 except in the modules that rounding hurts most.",
    relieves=("COMPUTE_BOUND",),
    phases=("forward", "loss", "forward_and_loss", "backward"),
    preserves=Preserves.NUMERIC,
    roundoff=lambda settings: autocast.ROUNDOFF["bf16"],
    when="As for `autocast` in bf16: the parameters are float32, the device is fast in bf16, and "
    "the script does not use autocast itself.",
    applies=lambda facts: (
        autocast.applies(facts)
        or (None if space(facts) else "This device is not known to be faster in bf16.")
    ),
    space=space,
    moment=Moment.LIVE,
    judged_by_cpu_time=True,
    apply=apply,
    edit=edit,
    costs="The casts between the two precisions. A large last layer (a vocabulary) is as slow as "
    "in float32 again. Nothing is computed in 8 bits (fp8): that is no rounding of the same "
    "training, so it would need a proof over seeds. A tied embedding keeps its own "
    "precision in each of its two places.",
    source="https://docs.pytorch.org/docs/stable/amp.html#autocast-op-reference",
)
