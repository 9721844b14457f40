"""The hooks of a recorded quality run; they lie outside those of the guest and of the levers.

So batches, losses and settings are seen as the script has them, and gradients and weights as the
optimizer has them. `quality_watcher.py` decides what is noted.
"""

from __future__ import annotations

import weakref
from typing import Any

from ..hooks.patching import drop_frame, replace
from .quality_watcher import QualityWatcher


def hook_calls(watcher: QualityWatcher) -> None:
    """See the outermost call of each module, in the way of the guest's own hook."""
    context, depth = watcher.context, watcher.depth
    module_class = context.torch.nn.Module
    original = module_class.__call__
    is_compiling = context.torch.compiler.is_dynamo_compiling

    # fmt: off
    def _wrapped_call_impl(self: Any, *args: Any, **kwargs: Any) -> Any:
        if is_compiling() or depth.calls or depth.backwards or watcher.is_idle:
            return original(self, *args, **kwargs)
        depth.calls = 1
        try:
            args, kwargs = watcher.before_call(self, args, kwargs)
            result = original(self, *args, **kwargs)
        except BaseException as error:
            drop_frame(error)
            raise
        finally:
            depth.calls = 0
        watcher.guarded(watcher.after_call, self, result)
        return result
    # fmt: on

    replace(module_class, "__call__", _wrapped_call_impl)
    module_class._wrapped_call_impl = _wrapped_call_impl


def hook_backward(watcher: QualityWatcher) -> None:
    """See the losses that the script goes backward from."""
    torch = watcher.context.torch
    for owner in (torch.Tensor, torch.autograd):
        replace(owner, "backward", make_backward(watcher, owner.backward))


def make_backward(watcher: QualityWatcher, original: Any) -> Any:
    """Return a wrapper that notes an outermost backward's loss and ends a perturbation."""
    context, depth = watcher.context, watcher.depth
    is_compiling = context.torch.compiler.is_dynamo_compiling

    def backward(*args: Any, **kwargs: Any) -> Any:
        if is_compiling() or depth.backwards or watcher.is_done:
            return original(*args, **kwargs)
        depth.backwards = 1
        try:
            watcher.guarded(watcher.before_backward, args, kwargs)
            return original(*args, **kwargs)
        except BaseException as error:
            drop_frame(error)
            raise
        finally:
            depth.backwards = 0
            watcher.guarded(watcher.after_backward)

    return backward


def hook_optimizers(watcher: QualityWatcher) -> None:
    """See weights and gradients around each outermost optimizer step."""
    from torch.optim.optimizer import (
        register_optimizer_step_post_hook,
        register_optimizer_step_pre_hook,
    )

    context = watcher.context

    # The guest's own hooks were registered before these, and they count nested steps.
    def before(optimizer: Any, args: Any, kwargs: Any) -> None:
        if not watcher.is_done and len(context.journal.optimizers) == 1:
            closure = kwargs.get("closure") or (args[1] if len(args) > 1 else None)
            watcher.guarded(watcher.before_update, optimizer, callable(closure))

    def after(optimizer: Any, args: Any, kwargs: Any) -> None:
        if not watcher.is_done and not context.journal.optimizers:
            watcher.guarded(watcher.after_update, optimizer)

    for hook in (before, after):
        hook._torchdynamo_disable = True  # type: ignore[attr-defined]
    register_optimizer_step_pre_hook(before)
    register_optimizer_step_post_hook(after)


def hook_scaler(watcher: QualityWatcher) -> None:
    """Remember the loss that the script's own scaler scaled."""
    scaler_class = watcher.context.torch.amp.GradScaler
    original = scaler_class.scale

    def scale(self: Any, outputs: Any) -> Any:
        scaled = original(self, outputs)
        if scaled is not outputs and hasattr(scaled, "data_ptr"):
            watcher.scaled = (weakref.ref(scaled), outputs.detach())
        return scaled

    replace(scaler_class, "scale", scale)


def hook_loaders(watcher: QualityWatcher) -> None:
    """See each batch that a DataLoader gives, and the samples it is made of."""
    iterator_class = watcher.context.torch.utils.data.dataloader._BaseDataLoaderIter
    original, original_index = iterator_class.__next__, iterator_class._next_index
    guarded = watcher.guarded

    def __next__(self: Any) -> Any:
        try:
            batch = original(self)
        except BaseException as error:
            if isinstance(error, StopIteration):
                guarded(watcher.batches.end_epoch, self)
            drop_frame(error)
            raise
        guarded(watcher.batches.take_batch, self, batch)
        return batch

    def _next_index(self: Any) -> Any:
        index = original_index(self)
        guarded(watcher.batches.take_index, self, index)
        return index

    replace(iterator_class, "__next__", __next__)
    replace(iterator_class, "_next_index", _next_index)


def hook_compile(watcher: QualityWatcher) -> None:
    """Count the requests to compile: a request without a graph had no effect."""
    torch = watcher.context.torch
    for owner in (torch, torch.nn.Module):
        replace(owner, "compile", make_compile(watcher, owner.compile))


def make_compile(watcher: QualityWatcher, original: Any) -> Any:
    """Return a wrapper that counts the calls."""

    def compile(*args: Any, **kwargs: Any) -> Any:  # noqa: A001
        watcher.compiles += 1
        try:
            return original(*args, **kwargs)
        except BaseException as error:
            drop_frame(error)
            raise

    return compile
