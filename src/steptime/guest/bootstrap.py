"""Puts the hooks in place once torch has been executed, and writes the last lines at the exit."""

from __future__ import annotations

import atexit
import multiprocessing.util
import os
from collections.abc import Callable
from time import thread_time_ns
from typing import Any

from ..record import kinds
from ..record.buckets import BACKWARDS, FORWARDS
from ..record.live.process_identity import describe_own_process
from .health.loss_watch import LossWatcher
from .hooks import (
    checkpoint_hooks,
    distributed,
    environments,
    keras_hooks,
    loader_hooks,
    model_calls,
    tensor_hooks,
    training_hooks,
    wait_hooks,
)
from .hooks.context import Context
from .memory.dissect import dissect_death, make_anatomy
from .sites.file_owners import FileOwners
from .sites.frames import Frames
from .timeline.device_clock import DeviceClock
from .timeline.recorder import Recorder, announce
from .watchers.compile_books import CompileWatcher
from .watchers.ending import find_error, tell_error
from .watchers.inputs import find_versions
from .watchers.kinship import describe_kinship, whole_number
from .watchers.logging_calls import hook_loggers
from .watchers.optimizer_places import OptimizerPlaces
from .watchers.pause_watcher import PauseWatcher
from .watchers.process_memory import MemoryWatcher
from .watchers.start_up import ImportTimes, StartUp, StartUpWatcher, hook_libraries

OLDEST_TORCH = (2, 4)

INSTALLERS: tuple[Callable[[Context], None], ...] = (
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
)


def start(
    torch: Any,
    run: str,
    targets: dict[str, Callable[[Any], None]],
    imports: ImportTimes | None = None,
) -> Context | None:
    """Install all hooks into this process, and what the environment asks for.

    Args:
        torch: the module that has just been executed.
        run: the run's folder.
        targets: for each module name, what is called once that module has been executed.
        imports: the imports so far, and those to come.
    """
    context = enter(torch, run, targets, imports)
    if context is None:
        return None
    if plan := os.environ.get("STEPTIME_PLAN"):
        context.guarded("install:plan", install_plan, context, plan, targets)
    if wish := os.environ.get("STEPTIME_PROFILE"):
        context.guarded("install:profile", install_profile, context, wish)
    if os.environ.get("STEPTIME_HEALTH"):
        context.guarded("install:health", install_health, context)
    context.guarded("install:questions", install_questions, context)
    return context


def enter(
    torch: Any,
    run: str,
    targets: dict[str, Callable[[Any], None]],
    imports: ImportTimes | None = None,
    *,
    is_late: bool = False,
) -> Context | None:
    """Install all hooks; `is_late` says that the script has used torch before."""
    version = str(torch.__version__)
    facts: dict[str, Any] = {"version": version} | describe_own_process()
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST_TORCH:
        announce(run, kinds.TORCH, facts | {"too_old": True})
        return None
    recorder = Recorder(run, lambda: make_head(torch, recorder))
    context = Context(torch, recorder, is_late=is_late)
    recorder.meet_first = lambda optimizer: context.guarded(
        "kinship", note_kinship, torch, recorder, optimizer
    )
    for install in INSTALLERS:
        context.guarded(f"install:{install.__name__}", install, context)
    targets["torch._dynamo.callback"] = lambda module: training_hooks.hook_compile(context, module)
    context.guarded("install:environments", environments.hook_libraries, context, targets)
    context.guarded("install:waits", wait_hooks.hook_waits, context, targets)
    context.guarded("install:libraries", checkpoint_hooks.hook_libraries, context, targets)
    context.guarded("install:loggers", hook_loggers, context, targets)
    context.guarded("install:keras", keras_hooks.hook_keras, context, targets)
    context.guarded("install:watchers", install_watchers, context)
    context.guarded("install:start_up", install_start_up, context, imports, targets)
    context.guarded("install:end", install_ends, context)
    context.guarded("install:anatomy", install_anatomy, context)
    announce(run, kinds.TORCH, facts | recorder.failed())
    return context


def install_profile(context: Context, wish: str) -> None:
    """Let the first thread that steps open a profiler's window: the user asked for a profile."""
    from .profile.profile_window import make_profile_windows

    context.new_profile = make_profile_windows(
        context.torch, context.recorder, wish, context.switches
    )


def install_health(context: Context) -> None:
    """Look at the layers from the first update on: the user asked for that."""
    from .hooks.layer_hooks import layer_look

    layer_look(context).start()


def install_plan(context: Context, path: str, targets: dict[str, Callable[[Any], None]]) -> None:
    """Do what the parent's plan says, in a trial, a run with a recipe, or a run to be counted."""
    from .trial.plan_scope import is_meant
    from .trial.trial_guest import install_trial
    from .trial.trial_plan import read_plan

    plan = read_plan(path)
    if context.calls is not None and not plan.is_recipe:
        context.calls.switch_off()  # a trial leaves nothing outside its walls
    if not is_meant(plan.only, context.recorder.run):
        return
    if plan.bench is not None:
        from .bench.loop_pass import install_bench

        look_at_nothing_else(context)
        install_bench(context, plan.bench, targets)
        return
    if plan.order is not None:
        from .order.order_hooks import install as watch_orders

        watch_orders(context, plan.order)
        return
    if plan.forecast is not None:
        from .forecast.script_forecast import install_forecast

        look_at_nothing_else(context)
        install_forecast(context, plan.forecast)
        return
    if plan.is_counting:
        from .count.whole_updates import hook_threads

        context.is_counting = True
        context.sees_products = plan.sees_products
        context.leave_weights()
        hook_threads(context.torch, lambda: context.journal, lambda: context.counting)
        return
    trial = install_trial(context, path, lambda: finish(context))
    if trial.plan.is_live:
        context.anatomy = None  # each step is timed against others
        context.leave_weights()
        context.padding.stop()
        context.epochs.stop()
    install_memory_trial(context, plan)
    if trial.plan.quality is not None:
        from .quality.quality_setup import install

        install(context, trial.plan.quality, targets)  # last: outside the levers' hooks


def look_at_nothing_else(context: Context) -> None:
    """Leave memory, weights, padding and epochs alone: the process is there for one thing."""
    context.is_benched = True
    context.anatomy = None
    context.leave_weights()
    context.padding.stop()
    context.epochs.stop()


def install_memory_trial(context: Context, plan: Any) -> None:
    """Limit the device's memory, and hand out the largest batch, where the plan says so."""
    if plan.device_bytes is not None:
        from .trial.device_limit import limit_devices

        context.guarded("device_limit", limit_devices, context.torch, plan.device_bytes)
    if plan.hands_out_largest:
        from .longest.largest_first import LargestFirst

        context.epochs.stop()
        LargestFirst(context.torch).install()


def install_questions(context: Context) -> None:
    """Answer questions to a run; nobody asks a trial, or a process that only counts."""
    if context.is_counting or (context.trial is not None and not context.trial.plan.is_recipe):
        return
    from .asked.make_inquiry import watch_for_questions

    watch_for_questions(context)


def install_anatomy(context: Context) -> None:
    """Record who holds the memory, from the first call of a model on."""
    context.anatomy = context.autopsy = make_anatomy(context, announce)


def install_watchers(context: Context) -> None:
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
    context: Context, imports: ImportTimes | None, targets: dict[str, Callable[[Any], None]]
) -> None:
    """Sort the time before the first update by what the script does; then nothing is left of it."""
    start_up = StartUp(context.recorder, Frames(FileOwners(context.torch)), imports)
    watcher = StartUpWatcher(context.torch, context.recorder, start_up)
    context.recorder.watchers.append(watcher)
    hook_libraries(context.torch, context.recorder, start_up, targets)


def install_ends(context: Context) -> None:
    """Write the last lines at the exit, and start again from nothing in a forked child."""
    recorder = context.recorder
    atexit.register(finish, context)
    context.undo.append(lambda: atexit.unregister(finish))

    def begin_again() -> None:
        recorder.reset()
        context.journal.reset()
        context.num_batches = 0
        if context.calls is not None:
            context.calls.reset()
        if context.autopsy is not None:
            context.autopsy.reset()
            context.anatomy = context.autopsy

    call_after_fork(context, begin_again)
    # A child of multiprocessing leaves through os._exit, which runs multiprocessing's finalizers
    # but not those of atexit; a forked child forgets the finalizers of its parent.
    finish_at_end(context)
    multiprocessing.util.register_after_fork(context, finish_at_end)
    open_stream = recorder._open

    def open_and_prepare() -> None:
        open_stream()
        context.guarded("prepare", prepare, context)

    recorder._open = open_and_prepare  # type: ignore[method-assign]


AFTER_FORK: list[Callable[[], None]] = []
"""What is called in a forked child: what Python is given itself, it keeps until the end."""

is_registered = False


def call_after_fork(context: Context, act: Callable[[], None]) -> None:
    """Let forked children call `act`, until that is undone."""
    global is_registered
    if not is_registered:
        is_registered = True
        os.register_at_fork(after_in_child=after_fork)
    AFTER_FORK.append(act)
    context.undo.append(lambda: AFTER_FORK.remove(act))


def after_fork() -> None:
    """Do what was asked for in a forked child; nothing once all of it was undone."""
    for act in AFTER_FORK:
        act()


def finish_at_end(context: Context) -> None:
    """Write the last lines when multiprocessing ends this process, if it stepped at all."""

    def finish_if_stepped() -> None:
        if context.recorder.journals:
            finish(context)

    at_end = multiprocessing.util.Finalize(None, finish_if_stepped, exitpriority=0)
    context.undo.append(at_end.cancel)


def prepare(context: Context) -> None:
    """Prepare at the first update: a device's clock, if any, and the cost of a nested call."""
    torch, recorder = context.torch, context.recorder
    recorder.nested_ns = measure_nested_call(context)
    if torch.cuda.is_initialized():
        journal = context.journal
        journal.timeline.device = DeviceClock(
            lambda: torch.cuda.Event(enable_timing=True), torch.cuda.is_current_stream_capturing
        )
        journal.be_direct()


def measure_nested_call(context: Context) -> int:
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


def finish(context: Context, find: Callable[[], BaseException | None] = find_error) -> None:
    """Write what is left: the process ends in order, or by the error that is found."""
    recorder = context.recorder
    if recorder.is_closed or context.is_worker or recorder.pid != os.getpid():
        return
    recorder.is_closed = True
    context.guarded("finish", context.cells.tell_new)
    context.guarded("finish", context.journal.replay)
    context.guarded("finish", recorder.close)
    left = context.journal.timeline.wall
    facts = {
        "updates": recorder.num_updates - recorder.num_by_hand,
        "backwards": recorder.num_backwards + left[BACKWARDS],
        "forwards": recorder.num_forwards + left[FORWARDS],
        "batches": context.num_batches,
    } | recorder.failed()
    facts |= describe_own_process()
    try:
        error = find()
        facts |= tell_error(context.torch, error)
        if facts.get("error", {}).get("is_memory"):
            dissect_death(context, error)
    except Exception:
        recorder.fail("error")  # counted with those in `facts`, which holds the same tables
    context.guarded("finish", announce, recorder.run, kinds.EXIT, facts)


def make_head(torch: Any, recorder: Recorder) -> dict[str, Any]:
    """Return who this stream is, and what it computes on."""
    has_device = torch.cuda.is_initialized()
    return {
        **(recorder.who or describe_kinship(torch)),
        "local_rank": whole_number(os.environ.get("LOCAL_RANK")) or 0,
        "torch": str(torch.__version__),
        "device": "cuda" if has_device else "cpu",
        **(describe_device(torch) if has_device else {"device_name": None}),
        "num_threads": torch.get_num_threads(),
        "versions": find_versions(),
        "answers": list(recorder.answers),
    }


def describe_device(torch: Any) -> dict[str, Any]:
    """Return the name of the current device, and what tells parts of one name apart."""
    found = torch.cuda.get_device_properties(torch.cuda.current_device())
    return {
        "device_name": torch.cuda.get_device_name(),
        "device_bytes": getattr(found, "total_memory", None),
        "num_multiprocessors": getattr(found, "multi_processor_count", None),
    }


def note_kinship(torch: Any, recorder: Recorder, optimizer: Any) -> None:
    """Note who this process is among others while its first optimizer steps.

    When the head is written, the process group and the optimizer may be gone.
    """
    recorder.who = describe_kinship(torch, optimizer)
