"""`steptime.count`: the work of one forward and backward of a model, by its shapes.

In: a model and inputs for it. Out: a `measure.values.work.Count`. It runs the model once, in
the caller's process, and leaves gradients, buffers and random numbers as they were. Torch is
imported when it is called; the formulas are those of the guest.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from time import perf_counter_ns
from typing import Any

from steptime.core.codec import from_json
from steptime.guest.count.completeness import CompletenessProof
from steptime.guest.count.counting_mode import make_mode
from steptime.guest.count.tally import Tally
from steptime.measure.values.work import Count


def count(model: Callable[..., Any], *inputs: Any, **kwargs: Any) -> Count:
    """The work of `model(*inputs, **kwargs)`, and of the gradients of what it returns.

    A compiled model is counted as it is written. Under `torch.no_grad()` there is no backward. Of
    what the model returns, a scalar called `loss`, or a scalar alone, goes backward, else all
    that has gradients.

    Args:
        model: a module, or a function that calls some and returns a loss.
        inputs: what it is called with; on the meta device nothing is computed.
        kwargs: what it is called with by name.

    Raises:
        ImportError: torch is not installed.
    """
    import torch

    is_compiled = _is_compiled(model)
    model, completeness = _unwrapped(torch, model), CompletenessProof(torch)
    tally = Tally(torch, completeness=completeness)
    with ExitStack() as stack:
        stack.enter_context(_left_as_it_was(torch, model, (*inputs, *kwargs.values())))
        stack.enter_context(_written_as_is())
        tally.follow_modules()
        stack.callback(tally.unfollow_modules)
        fakes = _has_fakes(torch, model, (*inputs, *kwargs.values()))
        mode = make_mode(torch, tally.add, perf_counter_ns, decomposes=True, takes_fakes=fakes)
        stack.enter_context(mode)
        completeness.see_inputs(_tensors(torch, (*inputs, *kwargs.values())))
        result = model(*inputs, **kwargs)
        roots = [one for one in _tensors(torch, _loss_of(torch, result)) if one.requires_grad]
        if roots:
            with _gradients_put_back(torch, roots):
                torch.autograd.backward(roots, [torch.ones_like(root) for root in roots])
                completeness.see_gradients(_parameters_of(torch, model))
    ran = not fakes and all(str(one.device) != "meta" for one in _tensors(torch, result))
    return from_json(Count, tally.table(is_executed=not is_compiled, is_timed=ran))


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


def _has_fakes(torch: Any, model: Any, values: tuple[Any, ...]) -> bool:
    held = (*_parameters_of(torch, model), *_tensors(torch, values))
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


# -- nothing is changed


@contextmanager
def _left_as_it_was(torch: Any, model: Any, inputs: tuple[Any, ...]) -> Iterator[None]:
    """Put back random numbers, buffers, and gradients of parameters and inputs."""
    is_module = isinstance(model, torch.nn.Module)
    buffers = [(one, one.detach().clone()) for one in model.buffers()] if is_module else []
    leaves = [*(model.parameters() if is_module else ()), *_tensors(torch, inputs)]
    devices = sorted({one.device.index or 0 for one in leaves if one.device.type == "cuda"})
    with torch.random.fork_rng(devices), _kept_aside([one for one in leaves if one.is_leaf]):
        try:
            yield
        finally:
            with torch.no_grad():
                for buffer, before in buffers:
                    buffer.copy_(before)


@contextmanager
def _gradients_put_back(torch: Any, roots: list[Any]) -> Iterator[None]:
    """The same for all leaves that the graph knows, where the model is a function."""
    leaves, pending, seen = [], [root.grad_fn for root in roots], set()
    while pending:
        node = pending.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            leaves.append(node.variable)
        pending += [following for following, _ in node.next_functions]
    with _kept_aside(leaves):
        yield


@contextmanager
def _kept_aside(leaves: list[Any]) -> Iterator[None]:
    """Set gradients and their hooks aside, and put them back.

    An optimizer may hang there, which would step, or a reduction over ranks.
    """
    leaves = [one for one in {id(one): one for one in leaves}.values() if one.requires_grad]
    before = [(one, one.grad, dict(one._post_accumulate_grad_hooks or {})) for one in leaves]
    for one, _, hooks in before:
        one.grad = None
        if hooks:  # emptied, for torch's own node holds this very dictionary
            one._post_accumulate_grad_hooks.clear()
    try:
        yield
    finally:
        for one, gradient, hooks in before:
            one.grad = gradient
            if hooks:
                one._post_accumulate_grad_hooks.update(hooks)


# -- what goes backward


def _loss_of(torch: Any, result: Any) -> Any:
    found = result.get("loss") if isinstance(result, dict) else getattr(result, "loss", None)
    if isinstance(found, torch.Tensor) and found.dim() == 0:
        return found
    if isinstance(result, (list, tuple)):
        scalars = [one for one in result if isinstance(one, torch.Tensor) and one.dim() == 0]
        if len(scalars) == 1:
            return scalars[0]
    return result


def _tensors(torch: Any, value: Any) -> list[Any]:
    """The tensors in it, lists, tuples and mappings opened."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, (list, tuple)):
        return [one for each in value for one in _tensors(torch, each)]
    fields = getattr(value, "__dataclass_fields__", None)
    if fields:
        return _tensors(torch, [getattr(value, name) for name in fields])
    return []
