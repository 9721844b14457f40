"""Where and how optimizers keep what belongs to a weight; several levers share this."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..base import Undo
from .owners import put


def parameters_of(optimizer: Any) -> list[Any]:
    """Return all parameters of an optimizer."""
    return [one for group in optimizer.param_groups for one in group["params"]]


def lay_out_gradients(torch: Any, parameters: Iterable[Any]) -> None:
    """Lay out gradients like their parameters; gradients that a script set may differ."""
    for one in parameters:
        if (grad := one.grad) is not None:
            moved = laid_out_like(torch, one, grad)
            if moved is not grad:
                one.grad = moved


def lay_out_states(torch: Any, optimizer: Any) -> None:
    """Lay out the optimizer states of a parameter's shape like the parameter."""
    for one in parameters_of(optimizer):
        state = optimizer.state.get(one, {})
        for key, value in list(state.items()):
            if isinstance(value, torch.Tensor) and value.shape == one.shape:
                state[key] = laid_out_like(torch, one, value)


def laid_out_like(torch: Any, parameter: Any, value: Any) -> Any:
    """Return the value in the parameter's order of memory; unchanged if it is so already."""
    if value.is_sparse or value.stride() == parameter.stride():
        return value
    strides = zip(parameter.shape, parameter.stride(), value.stride())  # noqa: B905
    if all(size < 2 or one == other for size, one, other in strides):
        return value  # with one element, a stride is never used
    return torch.empty_like(parameter, dtype=value.dtype, device=value.device).copy_(value)


def count_steps_there(torch: Any, optimizer: Any) -> None:
    """Keep each step count on the device and in the dtype that the implementation expects."""
    wide = torch.float64 if torch.get_default_dtype() == torch.float64 else torch.float32
    for group in optimizer.param_groups:
        is_fused = group.get("fused")
        for parameter in group["params"]:
            state = optimizer.state.get(parameter, {})
            if isinstance(step := state.get("step"), torch.Tensor):
                here = parameter.device if is_fused or group.get("capturable") else "cpu"
                state["step"] = step.to(here, torch.float32 if is_fused else wide)


def drop_as_before(torch: Any) -> Undo:
    """Give dropout four-dimensional tensors in the usual order of memory.

    It stays the order of what it gives: before a flattening that is where it must go anyway, and a
    convolution whose weights have channels last turns what it gets.
    """
    functional = torch.nn.functional
    original = functional.dropout

    def dropout(input: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: A002
        if input.dim() != 4 or input.is_contiguous():
            return original(input, *args, **kwargs)
        dropped = original(input.contiguous(), *args, **kwargs)
        is_inplace = kwargs.get("inplace") or (len(args) > 2 and args[2])
        return input.copy_(dropped) if is_inplace else dropped

    return put(functional, "dropout", dropout)
