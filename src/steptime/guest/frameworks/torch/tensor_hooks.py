"""Hooks on tensors: reads that make the host wait, and copies between host and device.

Without a device there is no queue to wait for and no copy to make: calls are counted, and nothing
is timed. One read fires several methods (printing a scalar: twelve), so only the outermost one
counts. An optimizer reads its step counters once for each parameter; that is not counted.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

from ....record.buckets import H2D, OPTIMIZER, SYNC
from ...hooks.callers_place import from_callers_place, stand_in
from ...hooks.patching import drop_frame, pass_as_torchs, replace
from ...timeline.acts import LEAVE, LEAVE_UNMOVED
from ...timeline.journal import Journal
from .torch_context import TorchContext, marked

READS = (
    *("item", "tolist", "numpy", "__array__", "cpu"),
    *("__bool__", "__float__", "__int__", "__index__", "__format__", "__repr__"),
)
NUMBERS = ("item", "__float__")
SILENT = ("item", "tolist", "cpu")
"""Methods that warn of nothing."""
COPYING = ("to", "cuda")


def hook_tensors(context: TorchContext) -> None:
    """Patch the scalar reads and the copies on `torch.Tensor`."""
    tensor_class = context.torch.Tensor
    pass_as_torchs(context.torch, see_number)
    stand_in(context.torch, context.recorder.fail)
    for name in READS:
        hook_method(context, tensor_class, name, SYNC)
    for name in COPYING:
        hook_method(context, tensor_class, name, H2D)


def hook_method(context: TorchContext, tensor_class: Any, name: str, bucket: int) -> None:
    """Count the outermost call; with a device, time it too.

    A tensor subclass or mode that handles torch functions must receive the public method as `func`,
    because its tables have `torch.Tensor.<name>` as keys: that is our method now. Where we came
    late, its tables were made before, with torch's own as keys.
    """
    original = getattr(tensor_class, name)
    is_compiling = context.torch.compiler.is_dynamo_compiling
    overrides = context.torch.overrides
    has_torch_function = overrides.has_torch_function_unary
    handle = overrides.handle_torch_function
    local = context.local
    gives_number, warns = name in NUMBERS, name not in SILENT

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return original(self, *args, **kwargs)
        try:
            if has_torch_function(self):
                return handle(public, (self,), self, *args, **kwargs)
            journal = local.journal
            if journal.in_tensor_call or journal.top == OPTIMIZER:
                return original(self, *args, **kwargs)
            journal.in_tensor_call = True
            act = partial(from_callers_place, sys._getframe(1), original) if warns else original
            if bucket == SYNC:
                journal.syncs += 1
            else:
                journal.copies += 1
            try:
                if journal.is_attentive and may_wait(context, bucket, self):
                    result = timed_call(context, bucket, act, self, args, kwargs)
                else:
                    result = act(self, *args, **kwargs)
                if gives_number and (journal.is_direct or result - result != 0):  # not finite
                    context.guarded("losses", see_number, journal, self, result)
                return result
            finally:
                journal.in_tensor_call = False
        except BaseException as error:
            drop_frame(error)
            raise

    public = original if context.is_late else method
    replace(tensor_class, name, method, file_of=tensor_class.__format__)


def see_number(journal: Journal, tensor: Any, number: Any) -> None:
    """Let the losses take what the script read from a device, or what is not finite."""
    if journal.losses is None:
        return
    if not tensor.is_cpu:
        journal.losses.see_read(tensor, number)
    if number - number != 0:
        journal.losses.see_bad_read(tensor, number)


def may_wait(context: TorchContext, bucket: int, tensor: Any) -> bool:
    """Return whether there may be something to wait for; not where we fail."""
    try:
        return is_timed(context, bucket, tensor)
    except BaseException:
        context.recorder.fail("tensor")
        return False


def is_timed(context: TorchContext, bucket: int, tensor: Any) -> bool:
    """Return whether there may be something to wait for; if not, only the call's place is noted."""
    journal = context.journal
    if journal.is_direct and (bucket != SYNC or tensor.device.type != "cpu"):
        return True
    if journal.windows is not None:
        context.guarded("sites", journal.windows.count, bucket)
    return False


def timed_call(
    context: TorchContext, bucket: int, original: Any, tensor: Any, args: Any, kwargs: Any
) -> Any:
    """Time one call on a machine with a device; return the time if nothing was moved."""
    journal = context.journal
    outer = journal.top
    context.guarded("tensor", journal.note, bucket, bucket)
    moved = True
    try:
        result = original(tensor, *args, **kwargs)
        if bucket == H2D:
            moved = result.device != tensor.device
        return result
    except BaseException as error:
        drop_frame(error)
        raise
    finally:
        context.guarded("tensor", journal.note, LEAVE if moved else LEAVE_UNMOVED, outer)


def hook_synchronize(context: TorchContext) -> None:
    """Time explicit waits for the device."""
    torch = context.torch
    for module in (torch.cuda, torch.accelerator if hasattr(torch, "accelerator") else None):
        if module is not None and hasattr(module, "synchronize"):
            replace(module, "synchronize", marked(context, module.synchronize, SYNC))
