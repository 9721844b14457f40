"""Lets the guest into a process once torch is there, and writes the last lines at the exit.

What knows torch is in `frameworks/torch`, what a process is there for in `modes/`.
"""

from __future__ import annotations

import atexit
import multiprocessing.util
import os
from collections.abc import Callable
from typing import Any

from ..record import kinds
from ..record.buckets import BACKWARDS, FORWARDS
from ..record.live.process_identity import describe_own_process
from .frameworks.torch.process_head import make_head
from .frameworks.torch.torch_context import TorchContext
from .frameworks.torch.torch_install import install, is_too_old
from .memory.dissect import dissect_death
from .modes.choose_mode import choose_mode
from .modes.mode import GuestMode, Targets
from .timeline.recorder import Recorder, announce
from .watchers.ending import find_error, tell_error
from .watchers.start_up import ImportTimes


def start(
    torch: Any,
    run: str,
    targets: Targets,
    imports: ImportTimes | None = None,
    *,
    plan: str | None = None,
    shown: int | None = None,
) -> TorchContext | None:
    """Install all hooks into this process, and what the environment asks for.

    Args:
        torch: the module that has just been executed.
        run: the run's folder.
        targets: for each module name, what is called once that module has been executed.
        imports: the imports so far, and those to come.
        plan: what it is to do, a text or the path of one; None to observe.
        shown: the address of the memory in which the parent shows a trial's experiments.
    """
    context = enter(torch, run, choose_mode(run, plan, shown), targets, imports)
    if context is not None:
        context.guarded("install:plan", context.mode.install, context, targets, finish)
    return context


def enter(
    torch: Any,
    run: str,
    mode: GuestMode,
    targets: Targets,
    imports: ImportTimes | None = None,
    *,
    is_late: bool = False,
) -> TorchContext | None:
    """Install all hooks; `is_late` says that the script has used torch before."""
    facts: dict[str, Any] = {"version": str(torch.__version__)} | describe_own_process()
    if is_too_old(torch):
        announce(run, kinds.TORCH, facts | {"too_old": True})
        return None
    recorder = Recorder(run, lambda: make_head(torch, recorder))
    context = TorchContext(torch, recorder, mode, is_late=is_late)
    install(context, targets, imports)
    context.guarded("install:end", install_ends, context)
    announce(run, kinds.TORCH, facts | recorder.failed())
    return context


def install_ends(context: TorchContext) -> None:
    """Write the last lines at the exit, and start again from nothing in a forked child."""
    recorder = context.recorder
    atexit.register(finish, context)
    context.undo.append(lambda: atexit.unregister(finish))

    def begin_again() -> None:
        for journal in recorder.journals:
            if journal.resting is not None and journal.resting.is_resting:
                journal.resting.put_back()
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


AFTER_FORK: list[Callable[[], None]] = []
"""What is called in a forked child: what Python is given itself, it keeps until the end."""

is_registered = False


def call_after_fork(context: TorchContext, act: Callable[[], None]) -> None:
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


def finish_at_end(context: TorchContext) -> None:
    """Write the last lines when multiprocessing ends this process, if it stepped at all."""

    def finish_if_stepped() -> None:
        if context.recorder.journals:
            finish(context)

    at_end = multiprocessing.util.Finalize(None, finish_if_stepped, exitpriority=0)
    context.undo.append(at_end.cancel)


def wake(context: TorchContext) -> None:
    """End a rest of the watch, in whatever thread it is."""
    for journal in context.recorder.journals:
        if journal.resting is not None:
            journal.resting.wake()


def finish(context: TorchContext, find: Callable[[], BaseException | None] = find_error) -> None:
    """Write what is left: the process ends in order, or by the error that is found."""
    recorder = context.recorder
    if recorder.is_closed or context.is_worker or recorder.pid != os.getpid():
        return
    context.guarded("finish", wake, context)
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
    except BaseException:
        recorder.fail("error")  # counted with those in `facts`, which holds the same tables
    context.guarded("finish", announce, recorder.run, kinds.EXIT, facts)
