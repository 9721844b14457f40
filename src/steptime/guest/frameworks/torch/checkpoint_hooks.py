"""Hooks on what writes checkpoints: torch.save, torch.distributed.checkpoint, safetensors.

Each books its call to the span of checkpoints, and tells the book of checkpoints which part is
open. What is handed to torch's own functions in place of an object of torch's passes everything on.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from ....record.buckets import CHECKPOINT
from ...hooks.patching import drop_frame, put, replace
from ...timeline.acts import LEAVE_SPAN
from ...watchers.checkpoints import COPY, GATHER, SERIALIZE, WRITE, CheckpointWatcher
from .torch_context import TorchContext

TORCH, SAFETENSORS, DISTRIBUTED, STAGING = "torch", "safetensors", "distributed", "staging"

_SAVER = "torch.distributed.checkpoint.state_dict_saver"

Targets = dict[str, Callable[[Any], None]]


def hook_checkpoints(context: TorchContext) -> None:
    """Keep the writing of a checkpoint apart from the steps, and take its parts."""
    torch, saver = context.torch, context.torch.serialization
    context.recorder.watchers.append(context.checkpoints)
    replace(saver, "save", _saving(context, saver.save, TORCH, WRITE))
    put(torch, "save", saver.save)
    if hasattr(saver, "_save"):
        replace(saver, "_save", _serializing(context, saver._save))


def hook_libraries(context: TorchContext, targets: Targets) -> None:
    """Watch the libraries that write checkpoints, once something imports them."""
    for name, hook in (
        (_SAVER, _hook_distributed),
        ("torch.distributed.checkpoint.filesystem", _hook_files),
        ("safetensors.torch", _hook_safetensors),
    ):
        act = functools.partial(context.guarded, f"install:{hook.__name__}", hook, context)
        module = sys.modules.get(name)
        if module is None:
            targets[name] = act
        elif getattr(module.__spec__, "_initializing", False) is False:
            act(module)


def _hook_distributed(context: TorchContext, module: Any) -> None:
    package = sys.modules.get(_SAVER.rpartition(".")[0])
    for name, kind, part in (("save", DISTRIBUTED, GATHER), ("async_save", STAGING, COPY)):
        original = getattr(module, name)
        wrapper = _saving(context, original, kind, part)
        replace(module, name, wrapper)
        if getattr(package, name, None) is original:  # it was imported before us
            put(package, name, wrapper)


def _hook_files(context: TorchContext, module: Any) -> None:
    writer = module._FileSystemWriter
    if "write_data" in vars(writer):
        wrapper = _turning(context, writer.write_data, DISTRIBUTED, WRITE)
        replace(writer, "write_data", wrapper)


def _hook_safetensors(context: TorchContext, module: Any) -> None:
    replace(module, "save_file", _saving(context, module.save_file, SAFETENSORS, COPY))
    original = module.serialize_file  # in Rust: without a name that `replace` could take over
    put(module, "serialize_file", _turning(context, original, SAFETENSORS, WRITE))


def _saving(context: TorchContext, original: Any, kind: str, part: int) -> Any:
    """Return a wrapper that books a call to the span, and begins with this part."""
    is_compiling = context.torch.compiler.is_dynamo_compiling
    local, guarded, book = context.local, context.guarded, context.checkpoints

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return original(*args, **kwargs)
        try:
            journal = local.journal
            outer = journal.top
            is_begun = _begin(context, book, kind, part)
            if outer != CHECKPOINT:
                guarded("checkpoint", journal.note_with_cpu, CHECKPOINT, CHECKPOINT)
            try:
                return original(*args, **kwargs)
            finally:
                if is_begun:
                    guarded("checkpoint", _end, context, book)
                if outer != CHECKPOINT:
                    guarded("checkpoint", journal.note_with_cpu, LEAVE_SPAN, outer)
        except BaseException as error:
            drop_frame(error)
            raise

    return wrapper


def _begin(context: TorchContext, book: CheckpointWatcher, kind: str, part: int) -> bool:
    try:
        return book.begin(kind, part)
    except BaseException:
        context.recorder.fail("checkpoint")
        return False


def _end(context: TorchContext, book: CheckpointWatcher) -> None:
    has_steps = context.journal.num_updates > 0
    book.end(is_beside=not has_steps and bool(context.recorder.journals))


def _turning(context: TorchContext, original: Any, kind: str, part: int) -> Any:
    """Return a wrapper at whose call another part begins."""
    guarded, book = context.guarded, context.checkpoints

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        guarded("checkpoint", book.turn, kind, part)
        try:
            return original(*args, **kwargs)
        except BaseException as error:
            drop_frame(error)
            raise

    return wrapper


def _serializing(context: TorchContext, original: Any) -> Any:
    """Return a wrapper of `_save`, which pickles first, and then copies and writes in turn."""
    book, fail = context.checkpoints, context.recorder.fail

    def wrapper(obj: Any, zip_file: Any, *args: Any, **kwargs: Any) -> Any:
        saving = None
        try:
            try:
                saving = book.current(TORCH)
                if saving is not None:
                    saving.turn(SERIALIZE, book.clock())
                    zip_file = TimedWriter(zip_file, saving, book.clock)
            except BaseException:
                fail("checkpoint")
            try:
                return original(obj, zip_file, *args, **kwargs)
            finally:
                if saving is not None:
                    saving.turn(WRITE, book.clock())  # the file's directory, and its end
        except BaseException as error:
            drop_frame(error)
            raise

    return wrapper


class TimedWriter:
    """Stands for torch's writer of zip files inside `_save`, and times its records.

    The first record is the pickle, so what came before it was pickling; what comes between records
    is the copy of a storage from its device.
    """

    def __init__(self, writer: Any, saving: Any, clock: Callable[[], int]) -> None:
        self._writer = writer
        self._saving = saving
        self._clock = clock

    def write_record(self, name: str, data: Any, size: int) -> Any:
        """Hand a record on, as it is."""
        saving = self._saving
        saving.turn(WRITE, self._clock())
        try:
            return self._writer.write_record(name, data, size)
        finally:
            saving.num_bytes += size
            saving.turn(COPY, self._clock())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._writer, name)
