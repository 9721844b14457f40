"""Notes how large the inputs of an update's calls are: counted updates stand for others like them.

In: the arguments of outermost calls of models. Out: shapes in the journal, of which
`timeline/call_sizes.py` makes the numbers of a row. Only the shape of the first plain tensor is
read; no value of a tensor, and nothing of the user's runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ..padding.batch_watch import BatchWatch
from ..timeline.call_sizes import MAX_SHAPES, MAX_SIZE, sums_of
from ..timeline.journal import Journal
from ..watchers.inputs import plain_tensors

MAX_DEPTH = 3
"""How deep containers are searched: a tuple of a dict of a list is deep already."""


def shape_reader(
    torch: Any, fail: Callable[[str], None], padding: BatchWatch
) -> Callable[..., None]:
    """Return what notes the shape of a call's input in a journal; it calls `fail` if it fails.

    Where `padding` is due, it gets the arguments of a call with gradients as well.
    """
    tensor_class, num_modes = torch.Tensor, torch._C._len_torch_function_stack
    tracing = torch._C._get_tracing_state

    def see(journal: Journal, args: Any, kwargs: Any, *, is_plain: bool) -> None:
        try:
            if num_modes() or tracing() is not None:
                return  # what we read would reach the script's own mode, or stand in its trace
            if journal.num_updates >= padding.due and not is_plain:
                padding.see_call(args, kwargs, journal.num_updates)
            tensor: Any = args[0] if args else None
            if type(tensor) is not tensor_class or tensor.is_nested:
                tensor = _find(tensor_class, (*args, *kwargs.values()))
                if tensor is None:
                    return
            shapes = journal.shapes
            shapes.append(tensor.numel() if is_plain else tensor.shape)
            if len(shapes) > MAX_SHAPES:
                shapes[:] = [sums_of(shapes)]
        except BaseException:
            fail("sizes")

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
