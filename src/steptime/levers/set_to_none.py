"""Gradients that are dropped between updates instead of filled with zeros.

Zeros are written, and each first gradient is then added to them: one pass of writing and one of
reading too many. Dropped ones are made by the backward itself. A parameter without a gradient in
that backward gets its zeros afterwards, so that clipping and the optimizer find what they would
have found. Left as they are: sparse gradients, and those that are part of a larger buffer.

Source: torch.optim.Optimizer.zero_grad; PyTorch tuning guide, "Use parameter.grad = None".
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any

from .base import Facts, Lever, Moment, Preserves, Session, Settings, Undo


def applies(facts: Facts) -> str | None:
    """It applies where the script asks for zeros, which is not the default."""
    if facts.zeroes_gradients is False:
        return "The script does not call zero_grad(set_to_none=False)."
    if facts.world_size > 1:
        return "Several ranks share gradient buffers, which must stay where they are."
    return None  # where it was not observed, there may be nothing to drop


def apply(settings: Settings, session: Session) -> Undo:
    """Drop gradients where the script asks for zeros, and add those that a backward left out."""
    torch = session.torch
    dropped: dict[int, weakref.ref[Any]] = {}

    def drop(parameters: Iterable[Any]) -> None:
        for parameter in parameters:
            if can_drop(torch, parameter):
                parameter.grad = None
                dropped[id(parameter)] = weakref.ref(parameter)

    def fill(*_: Any) -> None:
        for reference in dropped.values():
            parameter = reference()
            if parameter is not None and parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        dropped.clear()

    def fill_after(call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        result = call(*args, **kwargs)
        if dropped:
            fill()
        return result

    undos = (
        wrap_zeroing(torch.optim.Optimizer, drop, parameters_of),
        wrap_zeroing(torch.nn.Module, drop, lambda module: module.parameters()),
        session.wrap_backward(fill_after),
        session.before_update(fill),
    )

    def undo() -> None:
        fill()
        for take_back in undos:
            take_back()

    return undo


def wrap_zeroing(
    owner: Any, drop: Callable[[Iterable[Any]], None], parameters: Callable[[Any], Iterable[Any]]
) -> Undo:
    """Call `drop` before a class's own `zero_grad` wherever that is asked to fill in zeros."""
    zero = owner.zero_grad

    def zero_grad(self: Any, set_to_none: Any = True) -> None:  # noqa: FBT002 - as torch has it
        if not set_to_none:
            drop(parameters(self))
        zero(self, set_to_none=set_to_none)

    owner.zero_grad = zero_grad
    return lambda: setattr(owner, "zero_grad", zero)


def parameters_of(optimizer: Any) -> list[Any]:
    """Return the parameters of all groups."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def can_drop(torch: Any, parameter: Any) -> bool:
    """Return whether zeros in its gradient can be made again: dense, with memory of its own."""
    gradient = parameter.grad
    if type(gradient) is not torch.Tensor or gradient.layout is not torch.strided:
        return False
    if gradient.grad_fn is not None or gradient.stride() != parameter.stride():
        return False
    return bool(gradient.untyped_storage().nbytes() == gradient.nbytes)


LEVER = Lever(
    name="set_to_none",
    title="Drop gradients between updates instead of filling them with zeros.",
    relieves=("MEMORY_BANDWIDTH_BOUND",),
    phases=("gradient_processing", "backward", "other"),
    preserves=Preserves.EXACT,
    when="The script calls zero_grad(set_to_none=False) in one process.",
    applies=applies,
    space=lambda facts: ({},),
    moment=Moment.LIVE,
    judged_by_cpu_time=True,
    judged_beside_others=True,
    apply=apply,
    edit=lambda settings: "optimizer.zero_grad()  # set_to_none=True is the default",
    costs="A gradient is None between zero_grad and backward. A script that keeps a gradient over "
    "updates keeps the old one.",
    source="https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html",
)
