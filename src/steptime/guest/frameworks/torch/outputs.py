"""What a model returned, examined without letting a class of the user's compute anything."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def has_scalar(torch: Any, result: Any) -> bool:
    """Return whether a scalar that needs a gradient is among the outputs: the loss is inside.

    What a class of the user's would compute on access (a property, a lazy mapping) is not read: it
    might draw random numbers.
    """
    if isinstance(result, torch.Tensor):
        return wants_gradient(torch, result, scalar=True)
    values: Iterable[Any]
    if isinstance(result, dict):
        values = dict.values(result)
    elif isinstance(result, (tuple, list)):
        values = result
    else:
        values = (getattr(result, "__dict__", {}).get("loss"),)
    tensors = (value for value in values if isinstance(value, torch.Tensor))
    return any(wants_gradient(torch, tensor, scalar=True) for tensor in tensors)


def wants_gradient(torch: Any, tensor: Any, *, scalar: bool = False) -> bool:
    """Return whether a tensor needs a gradient (and is a scalar), unseen by subclass or mode."""
    if torch.overrides.has_torch_function_unary(tensor):
        with torch._C.DisableTorchFunction():
            return (not scalar or tensor.dim() == 0) and bool(tensor.requires_grad)
    return (not scalar or tensor.dim() == 0) and bool(tensor.requires_grad)
