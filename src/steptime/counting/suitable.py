"""Says, before anything runs, what `steptime.count` cannot count, why, and what to do about it."""

from __future__ import annotations

from typing import Any

from steptime.counting.kept_tensors import is_lazy
from steptime.errors import UsageError
from steptime.guest.count.counting_mode import is_foreign

LAYOUTS = ("torch.strided", "torch.sparse_coo", "torch.sparse_csr", "torch.sparse_csc")
BLOCKED = ("torch.sparse_bsr", "torch.sparse_bsc")


def check_thread(torch: Any) -> None:
    """Refuse where operators do not reach a mode, or would stay in what records them.

    Raises:
        UsageError: the caller traces, compiles, captures, or is inside a transform.
    """
    if torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None:
        raise UsageError(
            "steptime.count was called by a function that torch compiles or traces; call it "
            "outside of that function."
        )
    if torch._C._are_functorch_transforms_active():
        raise UsageError(
            "steptime.count was called inside torch.func (vmap, grad, jvp, ...); call it outside, "
            "with the function that has the transform in it."
        )
    if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
        raise UsageError(
            "steptime.count was called while a CUDA graph is captured; call it before or after "
            "the capture."
        )


def check_tensors(torch: Any, named: list[tuple[str, Any]]) -> None:
    """Refuse tensors whose operators a dispatch mode does not see as they are.

    Args:
        torch: the module.
        named: what a message calls each tensor, and the tensor.

    Raises:
        UsageError: one of them cannot be counted.
    """
    for name, one in named:
        if is_foreign(torch, type(one)):
            raise UsageError(f"cannot count: {name} is {_foreign_words(type(one).__name__)}")
        if is_lazy(one):
            raise UsageError(
                f"cannot count: {name} has no shape yet, because its module is lazy, and the "
                "first call would make it. Call the model once before you count it."
            )
        if torch._C._functorch.is_functorch_wrapped_tensor(one):
            raise UsageError(
                f"cannot count: {name} belongs to a transform of torch.func that has not ended; "
                "call steptime.count outside of vmap, grad and jvp, with plain tensors."
            )
        if str(one.layout) not in (*LAYOUTS, *BLOCKED):
            raise UsageError(
                f"cannot count: {name} has the layout {one.layout}, which has no sizes that a "
                "count could read. Use a plain (strided) tensor of the same shape."
            )


def refuse_foreign(names: set[str]) -> None:
    """Refuse what the model made of plain tensors.

    Raises:
        UsageError: there was a tensor that cannot be counted.
    """
    if names:
        made = _foreign_words(min(names))
        raise UsageError(f"cannot count: what the model makes of its inputs is {made}")


def _foreign_words(kind: str) -> str:
    """Return what kind of tensor it is, and what to do."""
    if kind == "NestedTensor":
        return (
            "a nested tensor of the jagged layout, whose products are not seen one by one. "
            "Count the sequences one after the other and add up, or nest them with "
            "layout=torch.strided."
        )
    return (
        f"a {kind}, a subclass of Tensor that runs its operators itself, where they are not "
        "seen. Count the model with plain tensors of the same shapes, before it is wrapped or "
        "quantized."
    )


def refuse_lost_backward(*, has_graph: bool) -> None:
    """Refuse an output without gradients, though the model computed with some.

    Raises:
        UsageError: a graph was made, and nothing that was returned belongs to it.
    """
    if has_graph:
        raise UsageError(
            "nothing that the model returned has gradients, though it computed with trained "
            "weights, so its backward would be left out. Return the loss itself (not .item() or "
            ".detach()), name it with loss=lambda output: ..., or count the forward alone under "
            "torch.no_grad()."
        )
