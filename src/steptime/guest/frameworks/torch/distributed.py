"""Hooks on communication: Python collectives by wrappers, DDP by its own logging data, FSDP2.

DDP reduces in C++, where no wrapper sees it. Its logging data has the communication and overlap
time of the last iteration; what did not overlap is taken out of backward.
"""

from __future__ import annotations

import sys
from typing import Any

from ....record.buckets import BACKWARD, COMMUNICATION
from ....record.live.call_ring import OPERATIONS
from ...hooks.callers_place import from_callers_place
from ...hooks.patching import drop_frame, put, replace
from ...said.search_watcher import watch_searches
from ...timeline.acts import LEAVE
from ...timeline.journal import Journal
from ...timeline.thread_timeline import ThreadTimeline
from ...watchers.call_record import find_arguments
from .torch_context import TorchContext, marked

COLLECTIVES: tuple[str, ...] = OPERATIONS[1:]


def hook_distributed(context: TorchContext) -> None:
    """Patch the collectives where they are defined and where they are re-exported; watch DDP."""
    torch = context.torch
    distributed = torch.distributed
    if not distributed.is_available():
        return
    for name in COLLECTIVES:
        original = getattr(distributed.distributed_c10d, name, None)
        if original is not None:
            wrapper = recorded(context, original, name)
            replace(distributed.distributed_c10d, name, wrapper)
            if getattr(distributed, name, None) is original:
                put(distributed, name, wrapper)
    work = distributed.Work
    replace(work, "wait", marked(context, work.wait, COMMUNICATION))
    hook_ddp(context)


def recorded(context: TorchContext, original: Any, name: str) -> Any:
    """Return a wrapper as `marked` does, which writes the call down before it enters it."""
    calls = context.calls
    if calls is None:
        return marked(context, original, COMMUNICATION)
    operation, arguments = OPERATIONS.index(name), find_arguments(original)
    is_compiling = context.torch.compiler.is_dynamo_compiling
    local, fail, note = context.local, context.recorder.fail, Journal.note
    begin, end = calls.begin, calls.end

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return original(*args, **kwargs)
        try:
            journal = local.journal
            outer = journal.top
            if outer == COMMUNICATION:
                return original(*args, **kwargs)
            place = 0
            try:
                note(journal, COMMUNICATION, COMMUNICATION)
                place = begin(operation, arguments, args, kwargs)
            except BaseException:
                fail("enter")
            try:
                result = original(*args, **kwargs)
            finally:
                try:
                    note(journal, LEAVE, outer)
                except BaseException:
                    fail("leave")
            if place:
                end(place)
            return result
        except BaseException as error:
            drop_frame(error)
            raise

    return wrapper


def hook_ddp(context: TorchContext) -> None:
    """Keep a weak reference to each DDP model, and let it time iterations where that is free."""
    ddp_class = context.torch.nn.parallel.DistributedDataParallel
    original = ddp_class.__init__

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            from_callers_place(sys._getframe(1), original, self, *args, **kwargs)
        except BaseException as error:
            drop_frame(error)
            raise
        context.guarded("ddp", watch, context, self)

    replace(ddp_class, "__init__", __init__)
    context.search = watch_searches(context, ddp_class)


def hook_fsdp(context: TorchContext, module: Any) -> None:
    """Let FSDP2 tell whether backward calls exchange gradients, where the script decides it."""
    fsdp_class = getattr(module, "FSDPModule", None)
    original = getattr(fsdp_class, "set_requires_gradient_sync", None)
    if fsdp_class is None or original is None:
        return

    def set_requires_gradient_sync(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            result = original(self, *args, **kwargs)
        except BaseException as error:
            drop_frame(error)
            raise
        context.guarded("fsdp", note_exchanges, context, args, kwargs)
        return result

    replace(fsdp_class, "set_requires_gradient_sync", set_requires_gradient_sync)


def note_exchanges(context: TorchContext, args: Any, kwargs: Any) -> None:
    """Take a call of `set_requires_gradient_sync`; backward calls before the first one count."""
    recorder = context.recorder
    if recorder.num_exchanges is None:
        recorder.num_exchanges = recorder.num_backwards
    context.exchanges = bool(args[0] if args else kwargs["requires_gradient_sync"])


def watch(context: TorchContext, model: Any) -> None:
    """Start to read a DDP model's logging data.

    On a device each sampled iteration synchronizes with its events, so torch's own rate (the first
    ten and every hundredth) stays there.
    """
    context.ddp_models.add(model)
    if not context.sense.is_off:
        context.guarded("sense", context.sense.replicas.meet, model, context.calls)
    if getattr(model, "device_type", None) == "cpu":
        model._set_ddp_runtime_logging_sample_rate(1)
    seen: dict[int, int] = {}

    def before_update(timeline: ThreadTimeline) -> None:
        take_exposed(context, timeline, seen)

    context.before_update = before_update


def take_exposed(context: TorchContext, timeline: ThreadTimeline, seen: dict[int, int]) -> None:
    """Move the exposed communication of each DDP model's last iteration out of backward.

    The data of an iteration appears with the next forward, so a step shows the wait of the step
    before it.
    """
    for model in list(context.ddp_models):
        data = model._get_ddp_logging_data()
        iteration = data.get("iteration", 0)
        if iteration == seen.get(id(model)):
            continue
        seen[id(model)] = iteration
        context.recorder.num_exchanges = max(seen.values())  # it counts no call under `no_sync`
        if context.search is not None:
            context.search.see(data)
        if model.device_type == "cpu":
            total = data.get("backward_comm_time", 0)
            hidden = data.get("backward_compute_comm_overlap_time", 0)
        else:
            total = data.get("avg_backward_comm_time", 0)
            hidden = data.get("avg_backward_compute_comm_overlap_time", 0)
        exposed = max(0, min(total - hidden, timeline.wall[BACKWARD]))
        timeline.wall[BACKWARD] -= exposed
        timeline.wall[COMMUNICATION] += exposed
