"""How large the inputs of an update's calls are, so that counted updates can stand for the others.

In: the arguments of outermost calls of models. Out: seven whole numbers an update, which its row
holds. Only the shape of the first plain tensor is read; no value of a tensor, and nothing of the
user's runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ..watchers.inputs import plain_tensors

ROWS, ELEMENTS, SQUARES, NODES, PLAIN, TRAINED, LARGEST = range(7)
"""The places of `record.buckets.SIZES`: leading sizes, elements, and the squares of the elements of
a row, summed over calls with gradients; nodes that these calls added to autograd's graph; elements
in calls without gradients; the weights that need gradients, as they were last looked at; and the
elements of the largest call with gradients, by which memory goes, and no work."""

MAX_SIZE = 1 << 50
"""Sums of a hundred updates of this size still fit into 64 bits."""

MAX_DEPTH = 3
"""How deep containers are searched: a tuple of a dict of a list is deep already."""


def size_reader(torch: Any) -> Callable[..., None]:
    """Return what adds the size of a call's input to the seven numbers."""
    tensor_class, num_modes = torch.Tensor, torch._C._len_torch_function_stack
    tracing = torch._C._get_tracing_state

    def see(sizes: list[int], args: Any, kwargs: Any, *, is_plain: bool) -> None:
        if num_modes() or tracing() is not None:
            return  # what we read would reach the script's own mode, or stand in its trace
        tensor: Any = args[0] if args else None
        if type(tensor) is not tensor_class or tensor.is_nested:
            tensor = _find(tensor_class, (*args, *kwargs.values()))
            if tensor is None:
                return
        elements = tensor.numel()
        if is_plain:
            sizes[PLAIN] = min(MAX_SIZE, sizes[PLAIN] + elements)
            return
        rows = tensor.size(0) if tensor.dim() else 1
        sizes[ROWS] = min(MAX_SIZE, sizes[ROWS] + rows)
        sizes[ELEMENTS] = min(MAX_SIZE, sizes[ELEMENTS] + elements)
        if elements > sizes[LARGEST]:
            sizes[LARGEST] = min(MAX_SIZE, elements)
        if rows:
            sizes[SQUARES] = min(MAX_SIZE, sizes[SQUARES] + elements * elements // rows)

    return see


def _find(tensor_class: Any, values: Iterable[Any]) -> Any:
    """Return the first plain tensor; of a nested one of torch's own, the tensor that it packs."""
    for value in values:
        packed = value._values if _is_nested(value) else None
        for tensor in plain_tensors(tensor_class, (value, packed), MAX_DEPTH):
            return tensor
    return None


def _is_nested(value: Any) -> bool:
    return type(value).__name__ == "NestedTensor" and type(value).__module__.startswith("torch.")


def count_trained(torch: Any, optimizers: Iterable[Any]) -> int:
    """Return how many weights the optimizers hold that need a gradient now."""
    num = 0
    with torch._C.DisableTorchFunction():  # what we read must not reach anybody's mode
        for optimizer in optimizers:
            groups = () if optimizer is None else optimizer.__dict__.get("param_groups", ())
            for group in groups:
                num += sum(one.numel() for one in group["params"] if one.requires_grad)
    return min(MAX_SIZE, int(num))
