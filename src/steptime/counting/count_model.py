"""Runs a model once, forward and backward, and adds up the operators.

In: a model and inputs for it. Out: a `measure.values.work.Count`. `suitable.py` says what is
refused before, `left_as_it_was.py` puts everything back, `loss_outputs.py` finds what goes
backward. Torch is imported when it is called; the formulas are those of the guest.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from time import perf_counter_ns
from typing import Any

from steptime.core.codec import from_json
from steptime.counting.graph import leaves_and_age
from steptime.counting.kept_attributes import modules_reached_by
from steptime.counting.left_as_it_was import LeftAsItWas
from steptime.counting.loss_outputs import Loss, roots_of
from steptime.counting.open_values import tensors_in, with_own_history
from steptime.counting.suitable import (
    check_tensors,
    check_thread,
    refuse_foreign,
    refuse_lost_backward,
)
from steptime.counting.undo import undoing
from steptime.guest.count.completeness import CompletenessProof
from steptime.guest.count.counting_mode import leave_mode, make_mode
from steptime.guest.count.tally import Tally
from steptime.measure.values.model.work import Count

ONE_AT_A_TIME = threading.RLock()
"""Two threads that put back what both have changed would leave what one of them saw in between."""


def count(model: Callable[..., Any], *inputs: Any, loss: Loss = None, **kwargs: Any) -> Count:
    """The work of `model(*inputs, **kwargs)`, and of the gradients of its loss.

    It runs once, in this process, and everything is left as it was: parameters, buffers, gradients,
    hooks, modules' attributes, random numbers of torch, Python and NumPy, torch's settings; also
    where the model raises. A compiled model is counted as it is written. Under `torch.no_grad()`
    there is no backward.

        steptime.count(model, images)
        steptime.count(model, images, loss=lambda output: criterion(output, labels))
        steptime.count(lambda: criterion(model(images), labels))

    Args:
        model: a module, or a function that calls some and returns a loss.
        inputs: what it is called with; on the meta device nothing is computed.
        loss: what goes backward: a function of the output, or its index, key or attribute. Without
            it, a single number called `loss` does; else one that is computed from all other
            outputs; else all outputs with gradients, if there is no single number among them.
        kwargs: what the model is called with by name; one that takes `loss` itself needs a lambda.

    Raises:
        ImportError: torch is not installed.
        UsageError: there are tensors that cannot be counted (nested ones of the jagged layout,
            subclasses that dispatch themselves, lazy ones); or it is not known which output is the
            loss; or the function steps an optimizer. The message says what to do.
    """
    import torch

    is_compiled = _is_compiled(model)
    model, completeness = _unwrapped(torch, model), CompletenessProof(torch)
    tally = Tally(torch, completeness=completeness)
    values = tensors_in(torch, (inputs, kwargs))
    with ONE_AT_A_TIME, undoing() as undo:
        check_thread(torch)
        check_tensors(torch, [("an input", one) for one in values])
        kept = LeftAsItWas(torch, undo)
        kept.note_model(modules_reached_by(torch, model))
        kept.note_inputs((inputs, kwargs))
        first = torch.autograd._get_sequence_nr()
        inputs, kwargs = with_own_history(torch, (inputs, kwargs))
        undo.enter_context(_written_as_is())
        torch.set_autocast_cache_enabled(False)  # casts that it held would have our graph
        tally.follow_modules()
        undo.callback(tally.unfollow_modules)
        fakes = _has_fakes(torch, model, values)
        mode = _mode(torch, tally, kept, fakes=fakes)
        undo.callback(leave_mode, torch, mode)
        mode.__enter__()
        completeness.see_inputs(tensors_in(torch, (inputs, kwargs)))
        result = model(*inputs, **kwargs)
        roots = roots_of(torch, result, loss)
        if roots:
            _go_backward(torch, kept, roots, first)
            completeness.see_gradients(_parameters_of(torch, model))
        refuse_foreign(mode.foreign)
        if not roots and not kept.has_backward and torch.is_grad_enabled():
            refuse_lost_backward(has_graph=torch.autograd._get_sequence_nr() > first)
    ran = not fakes and all(str(one.device) != "meta" for one in tensors_in(torch, result))
    return from_json(Count, tally.table(is_executed=not is_compiled, is_timed=ran))


def _mode(torch: Any, tally: Tally, kept: LeftAsItWas, *, fakes: bool) -> Any:
    """Return a mode that tells both what counts and what keeps."""

    def add(func: Any, args: Any, kwargs: Any, result: Any, ns: int) -> Any:
        kept.see_after(args, kwargs, result)
        return tally.add(func, args, kwargs, result, ns)

    return make_mode(
        torch, add, perf_counter_ns, decomposes=True, takes_fakes=fakes, before=kept.see_before
    )


def _go_backward(torch: Any, kept: LeftAsItWas, roots: list[Any], first: int) -> None:
    """Compute the gradients; a graph that was there before stays for whoever made it."""
    leaves, is_old = leaves_and_age(roots, first)
    kept.note_tensors(leaves)
    ones = [torch.ones_like(root) for root in roots]
    torch.autograd.backward(roots, ones, retain_graph=is_old)


def _parameters_of(torch: Any, model: Any) -> list[Any]:
    return list(model.parameters()) if isinstance(model, torch.nn.Module) else []


# -- the model as it is written


def _is_compiled(model: Any) -> bool:
    dynamo = sys.modules.get("torch._dynamo")
    if dynamo is None:
        return False
    parts = model.modules() if hasattr(model, "modules") else [model]
    return any(
        isinstance(part, dynamo.OptimizedModule)
        or getattr(part, "_compiled_call_impl", None) is not None
        or hasattr(part, "_torchdynamo_orig_callable")
        for part in parts
    )


def _has_fakes(torch: Any, model: Any, values: list[Any]) -> bool:
    held = (*_parameters_of(torch, model), *values)
    return any(type(one).__name__ == "FakeTensor" for one in held)


def _unwrapped(torch: Any, model: Any) -> Any:
    """The model without the wrapper that talks to other ranks, which would wait forever."""
    dynamo = sys.modules.get("torch._dynamo")
    if dynamo is not None and isinstance(model, dynamo.OptimizedModule):
        return _unwrapped(torch, model._orig_mod)
    if isinstance(model, (torch.nn.parallel.DistributedDataParallel, torch.nn.DataParallel)):
        return _unwrapped(torch, model.module)
    return model


@contextmanager
def _written_as_is() -> Iterator[None]:
    """Compiled parts run eagerly."""
    dynamo = sys.modules.get("torch._dynamo")
    if dynamo is None:
        yield
        return
    import torch

    # Before torch 2.6 there is no stance; a dispatch mode makes compiled parts run as written too.
    stance = getattr(torch.compiler, "set_stance", None)
    with nullcontext() if stance is None else stance("force_eager"):
        yield
