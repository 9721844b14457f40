"""Says from which of a model's outputs the gradients start.

In: what the model returned, and the caller's `loss=`. Out: tensors; or the sentence that asks for
`loss=`, because to guess would leave a part of the backward out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from steptime.counting.graph import covers
from steptime.counting.open_values import tensors_in
from steptime.errors import UsageError

Loss = Callable[[Any], Any] | str | int | None


def roots_of(torch: Any, output: Any, loss: Loss) -> list[Any]:
    """Return the tensors that go backward.

    Args:
        torch: the module.
        output: what the model returned.
        loss: a function of the output, or its key, index or attribute; None for the rule of
            `steptime.count`.

    Raises:
        UsageError: `loss` does not fit the output, or has no gradients; or without `loss`, the
            outputs do not say which of them is the loss.
    """
    if loss is None:
        return _found(torch, output)
    chosen = loss(output) if callable(loss) else _picked(output, loss)
    roots = _with_gradients(torch, chosen)
    if not roots and torch.is_grad_enabled():
        raise UsageError(
            f"loss= gave {_words(torch, chosen)}, which has no gradients; it must give a tensor "
            "that was computed from trained weights, or several. Count the forward alone under "
            "torch.no_grad()."
        )
    return roots


def _with_gradients(torch: Any, value: Any) -> list[Any]:
    return [one for one in tensors_in(torch, value) if one.requires_grad]


def _picked(output: Any, key: str | int) -> Any:
    try:
        if isinstance(key, str) and not isinstance(output, Mapping):
            return getattr(output, key)
        return output[key]
    except (LookupError, AttributeError, TypeError):
        raise UsageError(
            f"loss={key!r}: the model returned {_described(output)}, which has no such part; "
            "give a part that it has, or a function: loss=lambda output: ..."
        ) from None


def _found(torch: Any, output: Any) -> list[Any]:
    """Return a scalar called `loss`; else all outputs, unless one of them may be the loss alone."""
    named = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if isinstance(named, torch.Tensor) and named.numel() == 1 and named.requires_grad:
        return [named]
    roots = _with_gradients(torch, output)
    scalars = [one for one in roots if one.dim() == 0]
    if len(roots) < 2 or not scalars:
        return roots
    for one in scalars:
        if covers(one, [other for other in roots if other is not one]):
            return [one]
    raise UsageError(
        f"the model returned {len(roots)} tensors with gradients, {len(scalars)} of them a single "
        "number, and none is computed from all the others, so which is the loss is not known; "
        "name it: steptime.count(model, ..., loss=0) for the first output, loss='name' for a "
        "named one, or loss=lambda output: ... for what training computes from them."
    )


def _words(torch: Any, value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {list(value.shape)}"
    return _described(value)


def _described(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"a {type(value).__name__} with {', '.join(map(repr, value))}"
    if isinstance(value, (list, tuple)):
        return f"a {type(value).__name__} of {len(value)}"
    return f"a {type(value).__name__}"
