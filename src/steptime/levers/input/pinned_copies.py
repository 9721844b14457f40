"""Batches in pinned memory, and copies to the device that the host does not wait for.

The device reads pinned memory by itself, while the host goes on. What runs on the device afterwards
is queued behind the copy, so each result is the same. Torch does not hand the pinned memory out
again before the copy is done. Untested on a device.

Source: "A guide on good usage of non_blocking and pin_memory() in PyTorch"; ml-engineering
(Bekman), DataLoader: neither alone gives anything.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..base import Facts, Lever, Moment, Preserves, Session, Settings, Undo
from .device_batches import pin_as_read, why_no_copies


def goes_to_device(torch: Any, args: Any, kwargs: Any) -> bool:
    """Return whether the arguments of `Tensor.to` name a CUDA device, and not how to wait."""
    if "non_blocking" in kwargs or any(type(one) is bool for one in args):
        return False
    target = kwargs.get("device", args[0] if args else None)
    if isinstance(target, torch.Tensor):
        return bool(target.is_cuda)
    if type(target) is int:
        return True
    if isinstance(target, (str, torch.device)):
        return str(target).startswith("cuda")
    return False


def unwaited(torch: Any, original: Callable[..., Any], *, is_to: bool) -> Callable[..., Any]:
    """Return `Tensor.to` or `Tensor.cuda` that does not wait where the tensor is pinned."""

    @functools.wraps(original)
    def copy(self: Any, *args: Any, **kwargs: Any) -> Any:
        is_meant = goes_to_device(torch, args, kwargs) if is_to else not (len(args) > 1 or kwargs)
        if is_meant and not self.is_cuda and self.is_pinned():
            kwargs = {**kwargs, "non_blocking": True}
        return original(self, *args, **kwargs)

    return copy


def apply(settings: Settings, session: Session) -> Undo:
    """Pin the loaders' batches, and let copies of pinned tensors go on beside the host."""
    torch = session.torch
    tensor = torch.Tensor
    to, cuda = tensor.to, tensor.cuda
    tensor.to = unwaited(torch, to, is_to=True)
    tensor.cuda = unwaited(torch, cuda, is_to=False)
    unpin = pin_as_read(session, lambda loader, iterator: iterator)

    def undo() -> None:
        unpin()
        tensor.to, tensor.cuda = to, cuda

    return undo


def applies(facts: Facts) -> str | None:
    """It applies where a loader feeds a CUDA device."""
    return why_no_copies(facts)


LEVER = Lever(
    name="pinned_copies",
    title="Pin the batches, and do not wait for their copies to the device.",
    relieves=("INPUT_BOUND",),
    phases=("h2d",),
    preserves=Preserves.EXACT,
    when="A DataLoader feeds a CUDA device.",
    applies=applies,
    moment=Moment.STARTUP,
    apply=apply,
    edit=lambda settings: (
        "loader = DataLoader(..., pin_memory=True)\n"
        "inputs = inputs.to(device, non_blocking=True)  # each batch"
    ),
    costs="Pinned memory cannot be swapped. A script that writes into a batch on the host right "
    "after it was copied may change what arrives. Not tested on a device yet.",
    source="https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html",
)
