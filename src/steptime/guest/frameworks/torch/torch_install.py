"""Puts the hooks of torch in place, in the order in which they build on one another."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from time import thread_time_ns
from typing import Any

from ...health.loss_watch import LossWatcher
from ...hooks import environments, keras_hooks, wait_hooks
from ...memory.dissect import make_anatomy
from ...modes.mode import Targets
from ...said.hear import hear_libraries
from ...sense.sense_hooks import hook_sense
from ...sites.file_owners import FileOwners
from ...sites.frames import Frames
from ...spent.stack_sampler import watch_stacks
from ...timeline.recorder import announce
from ...watchers.compile_books import CompileWatcher
from ...watchers.logging_calls import hook_loggers
from ...watchers.optimizer_places import OptimizerPlaces
from ...watchers.pause_watcher import PauseWatcher
from ...watchers.process_memory import MemoryWatcher
from ...watchers.start_up import ImportTimes, StartUp, StartUpWatcher, hook_libraries
from . import (
    checkpoint_hooks,
    distributed,
    loader_hooks,
    model_calls,
    tensor_hooks,
    training_hooks,
)
from .device_clock import DeviceClock
from .process_head import note_kinship
from .resting_watch import RestingWatch
from .torch_context import TorchContext

OLDEST = (2, 4)

FSDP = "torch.distributed.fsdp._fully_shard._fully_shard"

INSTALLERS: tuple[Callable[[TorchContext], None], ...] = (
    model_calls.hook_calls,
    training_hooks.hook_backward,
    training_hooks.hook_optimizers,
    training_hooks.hook_scaler,
    training_hooks.hook_clipping,
    checkpoint_hooks.hook_checkpoints,
    loader_hooks.hook_loaders,
    tensor_hooks.hook_tensors,
    tensor_hooks.hook_synchronize,
    distributed.hook_distributed,
    hook_sense,
)


def is_too_old(torch: Any) -> bool:
    """Return whether this torch lacks what the hooks need."""
    return tuple(int(part) for part in str(torch.__version__).split(".")[:2]) < OLDEST


def install(context: TorchContext, targets: Targets, imports: ImportTimes | None) -> None:
    """Install all hooks and watchers.

    Args:
        context: of this process.
        targets: for each module name, what is called once that module has been executed.
        imports: the imports so far, and those to come.
    """
    recorder = context.recorder
    recorder.meet_first = lambda optimizer: context.guarded(
        "kinship", note_kinship, context.torch, recorder, optimizer
    )
    recorder.at_open.append(lambda: context.guarded("prepare", prepare, context))
    for act in INSTALLERS:
        context.guarded(f"install:{act.__name__}", act, context)
    targets["torch._dynamo.callback"] = lambda module: training_hooks.hook_compile(context, module)
    targets[FSDP] = lambda module: distributed.hook_fsdp(context, module)
    context.guarded("install:environments", environments.hook_libraries, context, targets)
    context.guarded("install:waits", wait_hooks.hook_waits, context, targets)
    context.guarded("install:libraries", checkpoint_hooks.hook_libraries, context, targets)
    context.guarded("install:loggers", hook_loggers, context, targets)
    context.guarded("install:said", hear_libraries, context)
    context.guarded("install:keras", keras_hooks.hook_keras, context, targets)
    context.guarded("install:watchers", install_watchers, context)
    context.guarded("install:start_up", install_start_up, context, imports, targets)
    context.guarded("install:looks", install_looks, context)
    if os.environ.get("STEPTIME_WATCH") != "all" and context.checksums is None:
        context.new_resting = functools.partial(RestingWatch, context)


def install_looks(context: TorchContext) -> None:
    """Look at what the mode wants, and what the user asked for in the environment."""
    mode = context.mode
    if mode.looks_at_memory:  # who holds it, from the first call of a model on
        context.anatomy = context.autopsy = make_anatomy(context, announce)
    if not mode.looks_at_weights:
        context.leave_weights()
    if not mode.looks_at_batches:
        context.padding.stop()
    if not mode.looks_at_epochs:
        context.epochs.stop()
    if mode.looks_at_script:
        context.guarded("install:spent", watch_stacks, context)
    else:
        context.repeats.stop()
        context.sense.stop()  # what it reads, the looks of a trial would take for the script's
    if context.calls is not None and not mode.records_calls:
        context.calls.switch_off()
    if wish := os.environ.get("STEPTIME_PROFILE"):
        context.guarded("install:profile", install_profile, context, wish)
    if level := os.environ.get("STEPTIME_CHECKSUMS"):
        context.guarded("install:checksums", keep_checksums, context, level)
    if os.environ.get("STEPTIME_HEALTH"):
        context.guarded("install:health", install_health, context)
    if mode.answers:
        context.guarded("install:questions", install_questions, context)


def install_profile(context: TorchContext, wish: str) -> None:
    """Let the first thread that steps open a profiler's window: the user asked for a profile."""
    from ...profile.profile_window import make_profile_windows

    context.new_profile = make_profile_windows(
        context.torch, context.recorder, wish, context.switches
    )


def keep_checksums(context: TorchContext, level: str) -> None:
    """Keep checksums of some updates: the user asked for that. Then the watch does not rest."""
    from ...quality.kept_checksums import install_checksums

    install_checksums(context, int(level))


def install_health(context: TorchContext) -> None:
    """Look at the layers from the first update on: the user asked for that."""
    from .layer_hooks import layer_look

    layer_look(context).start()


def install_questions(context: TorchContext) -> None:
    """Answer questions to a run."""
    from ...asked.make_inquiry import watch_for_questions

    watch_for_questions(context)


def install_watchers(context: TorchContext) -> None:
    """Add the watchers, which the recorder polls at each write; Python reports collections."""
    recorder = context.recorder
    recorder.pauses.watch(context.torch)
    context.undo.append(recorder.pauses.unwatch)
    recorder.watchers += [
        MemoryWatcher(context.torch, recorder),
        CompileWatcher(context.torch, recorder),
        PauseWatcher(recorder),
        LossWatcher(recorder),
        OptimizerPlaces(recorder, context.frames),
        context.padding,
        context.epochs,
        context.switches,
        context.inputs,
    ]


def install_start_up(
    context: TorchContext, imports: ImportTimes | None, targets: dict[str, Callable[[Any], None]]
) -> None:
    """Sort the time before the first update by what the script does; then nothing is left of it."""
    start_up = StartUp(context.recorder, Frames(FileOwners(context.torch)), imports)
    watcher = StartUpWatcher(context.torch, context.recorder, start_up)
    context.recorder.watchers.append(watcher)
    hook_libraries(context.torch, context.recorder, start_up, targets)


def prepare(context: TorchContext) -> None:
    """Prepare at the first update: a device's clock, if any, and the cost of a nested call."""
    torch, recorder = context.torch, context.recorder
    recorder.nested_ns = measure_nested_call(context)
    if torch.cuda.is_initialized():
        journal = context.journal
        journal.timeline.device = DeviceClock(
            lambda: torch.cuda.Event(enable_timing=True), torch.cuda.is_current_stream_capturing
        )
        journal.be_direct()


def measure_nested_call(context: TorchContext) -> int:
    """Measure what our wrapper adds to a nested module call [ns], with warm caches."""
    clock, rounds = thread_time_ns, 200
    local, is_compiling = context.local, context.torch.compiler.is_dynamo_compiling

    def nothing(*args: Any, **kwargs: Any) -> None: ...

    def wrapped(*args: Any, **kwargs: Any) -> None:
        if is_compiling():
            return nothing(*args, **kwargs)
        if local.journal.top >= 0:
            return nothing(*args, **kwargs)

    began = clock()
    for _ in range(rounds):
        nothing(context)
    middle = clock()
    for _ in range(rounds):
        wrapped(context)
    return max(0, clock() - middle - (middle - began)) // rounds
