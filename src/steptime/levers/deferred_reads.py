"""Reads of values on a device that wait for that value alone, or only once it is needed.

`loss.item()` waits for all that the device has to do, so that it then has nothing to do until the
host has prepared the next operators. The copy of a loss begins before its backward: a read of it
then waits for the forward alone, and gets the number itself. So does a read of what the loss was
made of, such as the loss before a `GradScaler` or a division (`_device_reads.py`).

A read that is only added to a sum, or kept in a variable that is only printed or computed with
(`_late_reads.py` says which), waits for nothing: the number is read when the script needs its
digits (`_late_numbers.py`). A number that is set again before it was printed is never waited for.

What the script prints stays the same, byte by byte, and in its place. So a read within a call of
`print` or of a logger waits for its own value, and is not held back until the next one. Held lines
would come behind what others write to the same file; and where the device fails in the next step,
or the process is killed, the last line would be lost with it. Loggers, progress bars and attributes
of objects get plain numbers, as they look at types. So do lists: `sum` and `np.mean` of other types
add in another way, with other bits.

A CPU has no queue, so there is nothing to defer. Ranks may reduce a value in place and leave no
mark on it, so among several nothing is copied before its backward. Untested on a device.

Source: PyTorch performance tuning guide, "Avoid unnecessary CPU-GPU synchronization"; the copies
before the backward, the sums and the kept numbers are our own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from ._device_reads import CudaCopies, DeviceReads
from .base import Facts, Lever, Moment, Preserves, Session, Settings, Undo

READS = ("item", "tolist", "__float__")


def applies(facts: Facts) -> str | None:
    """It applies where values are read from a CUDA device."""
    if facts.device == "cpu":
        return "Reads from a device were not observed, and on the CPU a read waits for nothing."
    if facts.device != "cuda":
        return f"It is written for CUDA devices, not for {facts.device}."
    if facts.syncs_per_step == 0:
        return "The script reads no value from the device in its steps."
    return None


def apply(settings: Settings, session: Session) -> Undo:
    """Begin copies of losses early, and let each kind of read ask for them."""
    torch = session.torch
    copies = CudaCopies(torch)

    def has_ranks() -> bool:
        ranks = torch.distributed
        return bool(ranks.is_available() and ranks.is_initialized() and ranks.get_world_size() > 1)

    reads = DeviceReads(copies.begin, is_on_cuda, copies.begin_beside, has_ranks)
    return put_on(session, reads)


def is_on_cuda(tensor: Any) -> bool:
    """Return whether a tensor is on a CUDA device."""
    return bool(tensor.is_cuda)


def put_on(session: Session, reads: DeviceReads) -> Undo:
    """Hook the reads of tensors, the backward, and the calls of models."""
    tensor_class = session.torch.Tensor
    before = {name: getattr(tensor_class, name) for name in READS}
    own = {name: vars(tensor_class).get(name) for name in READS}
    may_warn = True  # torch warns of the first conversion of a tensor with a gradient

    def item(tensor: Any) -> Any:
        if type(tensor) is not tensor_class or not reads.is_far(tensor):
            return before["item"](tensor)
        return reads.read_at(tensor, sys._getframe(1), lambda: before["item"](tensor))

    def tolist(tensor: Any) -> Any:
        if tensor.dim() or type(tensor) is not tensor_class or not reads.is_far(tensor):
            return before["tolist"](tensor)
        return reads.read(tensor, lambda: before["tolist"](tensor))

    def __float__(tensor: Any) -> float:  # noqa: N807 - it takes the place of torch's
        nonlocal may_warn
        if type(tensor) is not tensor_class or not reads.is_far(tensor):
            return float(before["__float__"](tensor))
        if tensor.requires_grad and (may_warn or session.torch.is_warn_always_enabled()):
            may_warn = False
            return float(before["__float__"](tensor))
        return float(reads.read(tensor, lambda: before["__float__"](tensor)))

    def call_forward(call: Callable[..., Any], model: Any, args: Any, kwargs: Any) -> Any:
        reads.forget()
        return call(model, *args, **kwargs)

    def call_backward(call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        reads.begin_backward(args, kwargs)
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
    title="Read a loss without waiting for its backward, and sums and kept values when needed.",
    relieves=("HOST_BOUND",),
    phases=("sync",),
    preserves=Preserves.EXACT,
    when="Values are read from a CUDA device in the steps (`.item()`, `float(loss)`): a loss, sums "
    "of losses, or a number that is kept and printed now and then. A line that is printed in each "
    "step waits for its own value, and stays in its place.",
    applies=applies,
    space=lambda facts: ({},),
    moment=Moment.LIVE,
    apply=apply,
    edit=lambda settings: "total += loss.detach()  # a tensor; read it once an epoch: total.item()",
    costs="An error of the device is raised at a later line. A loss that is changed through "
    "`.data` after its backward is read as it was before. The operations that led to a loss are "
    "kept until the next call of a model. Untested on a device.",
    source="https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html",
)
