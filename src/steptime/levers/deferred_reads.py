"""Reads of values on a device that wait for that value alone, or only once it is needed.

`loss.item()` waits for all that the device has to do, so that it then has nothing to do until the
host has prepared the next operators. The copy of a loss begins before its backward: a read of it
then waits for the forward alone, and gets the number itself. A read that is only added to a sum
(`_summed_reads.py` says which) waits for nothing: the sum is computed when it is printed, or when
its numbers are there (`_late_numbers.py`). What the script prints stays the same, byte by byte.

A CPU has no queue, so there is nothing to defer. A value that several ranks reduce in place would
be read as it was before. Untested on a device.

Source: PyTorch performance tuning guide, "Avoid unnecessary CPU-GPU synchronization"; the copy
before the backward and the sums are our own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from ._device_reads import DeviceReads, begin_on_cuda
from .base import Facts, Lever, Moment, Preserves, Session, Settings, Undo

READS = ("item", "tolist", "__float__")


def applies(facts: Facts) -> str | None:
    """It applies where one process reads values from a CUDA device."""
    if facts.device == "cpu":
        return "Reads from a device were not observed, and on the CPU a read waits for nothing."
    if facts.device != "cuda":
        return f"It is written for CUDA devices, not for {facts.device}."
    if facts.world_size > 1:
        return "Several ranks train: a value may be reduced in place after it was copied."
    if facts.syncs_per_step == 0:
        return "The script reads no value from the device in its steps."
    return None


def apply(settings: Settings, session: Session) -> Undo:
    """Begin copies of losses early, and let each kind of read ask for them."""
    torch = session.torch
    return put_on(session, DeviceReads(lambda tensor: begin_on_cuda(torch, tensor), is_on_cuda))


def is_on_cuda(tensor: Any) -> bool:
    """Return whether a tensor is on a CUDA device."""
    return bool(tensor.is_cuda)


def put_on(session: Session, reads: DeviceReads) -> Undo:
    """Hook the reads of tensors, the backward, and the calls of models."""
    tensor_class = session.torch.Tensor
    before = {name: getattr(tensor_class, name) for name in READS}
    own = {name: vars(tensor_class).get(name) for name in READS}

    def item(tensor: Any) -> Any:
        if type(tensor) is not tensor_class or not reads.is_far(tensor):
            return before["item"](tensor)
        return reads.read_at(tensor, sys._getframe(1), lambda: before["item"](tensor))

    def tolist(tensor: Any) -> Any:
        if tensor.dim() or type(tensor) is not tensor_class or not reads.is_far(tensor):
            return before["tolist"](tensor)
        return reads.read(tensor, lambda: before["tolist"](tensor))

    def __float__(tensor: Any) -> float:  # noqa: N807 - it takes the place of torch's
        if type(tensor) is not tensor_class or not reads.is_far(tensor) or tensor.requires_grad:
            return float(before["__float__"](tensor))  # torch may warn of a gradient
        return float(reads.read(tensor, lambda: before["__float__"](tensor)))

    def call_forward(call: Callable[..., Any], model: Any, args: Any, kwargs: Any) -> Any:
        reads.forget()
        return call(model, *args, **kwargs)

    def call_backward(call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        reads.begin_backward(args)
        return call(*args, **kwargs)

    undos = (session.wrap_calls(call_forward), session.wrap_backward(call_backward))
    tensor_class.item, tensor_class.tolist, tensor_class.__float__ = item, tolist, __float__

    def undo() -> None:
        for name, method in own.items():
            if method is None:
                delattr(tensor_class, name)  # its base class has it
            else:
                setattr(tensor_class, name, method)
        for take_back in undos:
            take_back()

    return undo


LEVER = Lever(
    name="deferred_reads",
    title="Read a loss without waiting for its backward, and sums of values when they are needed.",
    relieves=("HOST_BOUND",),
    phases=("sync",),
    preserves=Preserves.EXACT,
    when="One process on a CUDA device reads values in its steps (`.item()`, `float(loss)`).",
    applies=applies,
    space=lambda facts: ({},),
    moment=Moment.LIVE,
    apply=apply,
    edit=lambda settings: "total += loss.detach()  # a tensor; read it once an epoch: total.item()",
    costs="An error of the device is raised at a later line. A loss that is changed through "
    "`.data` after its backward is read as it was before. Untested on a device.",
    source="https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html",
)
