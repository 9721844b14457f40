"""Puts a look at the layers in place, and takes it away again, between two updates.

`Module._call_impl` and the loader's `_next_index` are replaced on torch's own classes for as long
as the look lasts; without one, neither is touched.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...health.layer_look import TAKE_TENSORS, LayerLook
from ...hooks.patching import drop_frame, pass_as_torchs

if TYPE_CHECKING:
    from .torch_context import TorchContext


def layer_look(context: TorchContext) -> LayerLook:
    """Return the look of this process, which is off until somebody starts it."""
    if context.look is None:
        context.look = make_layer_look(context)
    return context.look


def make_layer_look(context: TorchContext) -> LayerLook:
    """Return a look that is off."""
    torch, recorder = context.torch, context.recorder
    undo: list[Callable[[], None]] = []

    def begin() -> None:
        recorder.layers = context.layers = look
        undo.append(hook_modules(context, look))
        undo.append(hook_indices(context, look))

    def end() -> None:
        recorder.layers = context.layers = None
        while undo:
            undo.pop()()

    pass_as_torchs(torch, *TAKE_TENSORS)
    look = LayerLook(torch, recorder, context.frames, begin=begin, end=end)
    recorder.watchers.append(look)
    return look


def hook_modules(context: TorchContext, look: LayerLook) -> Callable[[], None]:
    """Show the look what each module returns; return what undoes that."""
    module_class = context.torch.nn.Module
    is_compiling = context.torch.compiler.is_dynamo_compiling
    local, original = context.local, module_class._call_impl

    def _call_impl(self: Any, *args: Any, **kwargs: Any) -> Any:
        if is_compiling() or not look.takes(local.journal):
            return original(self, *args, **kwargs)
        look.begin(self, args, kwargs)
        try:
            result = original(self, *args, **kwargs)
            look.see_result(self, args, kwargs, result)
            return result
        except BaseException as error:
            drop_frame(error)
            raise
        finally:
            look.end()

    return swap(module_class, "_call_impl", _call_impl, original)


def hook_indices(context: TorchContext, look: LayerLook) -> Callable[[], None]:
    """Show the look which samples a loader asks for; return what undoes that."""
    iterator_class = context.torch.utils.data.dataloader._BaseDataLoaderIter
    original = iterator_class._next_index

    def _next_index(self: Any) -> Any:
        try:
            index = original(self)
        except BaseException as error:
            drop_frame(error)
            raise
        context.guarded("layers", look.see_request, self, index)
        return index

    return swap(iterator_class, "_next_index", _next_index, original)


def swap(owner: Any, name: str, ours: Any, original: Any) -> Callable[[], None]:
    """Replace a function of torch's by ours; return what puts it back, unless another one came."""
    code = original.__code__
    ours.__code__ = ours.__code__.replace(
        co_filename=code.co_filename, co_firstlineno=code.co_firstlineno, co_name=code.co_name
    )
    setattr(owner, name, ours)

    def undo() -> None:
        if getattr(owner, name) is ours:
            setattr(owner, name, original)

    return undo
