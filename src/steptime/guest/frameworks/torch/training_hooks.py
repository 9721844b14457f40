"""Hooks on torch's own classes and registries: backward, optimizers, scaler, clipping, compiling.

Nothing is ever attached to an object of the user's. While torch compiles, each wrapper only calls
the original. Its code object has the file name of what it wraps, so dynamo treats it as torch's own
frame (docs/explanation/guest.md).
"""

from __future__ import annotations

import sys
from typing import Any
from weakref import ref

from ....record.buckets import (
    BACKWARD,
    COMPILE,
    GRADIENT_PROCESSING,
    NUM_BUCKETS,
    OPTIMIZER,
    OTHER,
)
from ...count.operators.operator_probe import TAKE_TENSORS as PROBE_TENSORS
from ...health.evaluation_losses import TAKE_TENSORS as EVALUATION_TENSORS
from ...health.graph_marks import TAKE_TENSORS as MARK_TENSORS
from ...health.loss_watch import TAKE_TENSORS
from ...hooks.callers_place import from_callers_place
from ...hooks.patching import drop_frame, pass_as_torchs, put, replace
from ...sense.sense_watch import TAKE_TENSORS as SENSE_TENSORS
from ...timeline.acts import ENTER_BACKWARD, ENTER_GRAD, LEAVE, LEAVE_BACKWARD, LEAVE_SPAN
from ...timeline.journal import Journal
from .torch_context import TorchContext, marked

OURS = __name__.rpartition(".frameworks")[0]

# -- backward


def hook_backward(context: TorchContext) -> None:
    """Time `Tensor.backward` and `autograd.backward`; `autograd.grad` is timed, not counted."""
    torch = context.torch
    pass_as_torchs(torch, *TAKE_TENSORS, *MARK_TENSORS, *EVALUATION_TENSORS, *PROBE_TENSORS)
    pass_as_torchs(torch, *SENSE_TENSORS)
    for owner in (torch.Tensor, torch.autograd):
        wrapper = make_backward(context, owner.backward)
        replace(owner, "backward", wrapper)
    replace(torch.autograd, "grad", make_grad(context, torch.autograd.grad))


def make_backward(context: TorchContext, original: Any) -> Any:
    """Return a wrapper that times and counts the outermost backward call."""
    is_compiling = context.torch.compiler.is_dynamo_compiling
    local, fail, switches = context.local, context.recorder.fail, context.switches
    graphs, num_nodes, sense = context.graphs, context.num_nodes, context.sense

    def backward(*args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return original(*args, **kwargs)
        try:
            journal = local.journal
            if journal.in_backward:
                return original(*args, **kwargs)
            journal.in_backward, is_done = True, False
            outer = journal.top
            try:
                if outer == OPTIMIZER and not are_running(context, sys._getframe(1)):
                    journal.drop_optimizers()
                    outer = OTHER
                journal.note(ENTER_BACKWARD, BACKWARD)
                journal.num_nodes = num_nodes()
                if (losses := journal.losses) is not None:
                    see_losses(losses, journal, args, kwargs)
                    sense.begin_backward(journal, args)
                if context.exchanges:
                    context.recorder.see_exchange()
                if journal.num_updates >= graphs.due:
                    context.guarded("graphs", context.see_graph, journal, args)
                if switches.due:
                    switches.take_sample()
                context.see_loss(args)
                if context.anatomy is not None and context.anatomy.awaits_backward:
                    context.dissect("see_backward", args)
            except BaseException:
                fail("backward")
            try:
                trial, probe = context.trial, journal.probe
                if trial is not None:
                    result = trial.run_backward(journal, original, args, kwargs)
                elif probe is not None:
                    result = probe.run(journal.disturb, original, args, kwargs, is_call=False)
                else:
                    result = original(*args, **kwargs)
                is_done = True
                return result
            finally:
                journal.in_backward = False
                try:
                    journal.note(LEAVE_BACKWARD, outer)
                    sense.end_backward()
                    if not journal.has_stepped and is_done:
                        journal.has_backward = True
                        end_by_hand(context, journal)
                    elif journal.evaluated is not None and is_done:
                        end_evaluation(context, journal)
                except BaseException:
                    fail("backward")
        except BaseException as error:
            drop_frame(error)
            raise

    return backward


def see_losses(losses: Any, journal: Journal, args: Any, kwargs: Any) -> None:
    """Take the loss that a backward call begins with."""
    if kwargs or journal.optimizers or not args:
        losses.see_other_loss(args, inside_step=bool(journal.optimizers))
    else:
        losses.see_loss(args)


def end_by_hand(context: TorchContext, journal: Journal) -> None:
    """End a row with a backward call, where no optimizer has stepped yet.

    This does not apply inside another backward call, as a checkpoint makes it in a device's thread.
    """
    if context.is_inside_backward() or context.is_worker:
        return
    if context.before_update is not None:
        journal.replay()
        context.before_update(journal.timeline)
    journal.end_by_hand()


def end_evaluation(context: TorchContext, journal: Journal) -> None:
    """Take the end of a closure's evaluation inside the one optimizer step that is open."""
    if len(journal.optimizers) == 1 and not context.is_inside_backward():
        journal.end_evaluation()


def make_grad(context: TorchContext, original: Any) -> Any:
    """Return a wrapper that books `autograd.grad` outside other markers to backward, uncounted.

    If it creates no graph, it serves an update as a backward call does; where the script makes no
    backward call and no optimizer steps, it ends a row.
    """
    is_compiling = context.torch.compiler.is_dynamo_compiling
    local, guarded = context.local, context.guarded

    def grad(*args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return original(*args, **kwargs)
        try:
            journal = local.journal
            if 0 < journal.top < NUM_BUCKETS:
                return original(*args, **kwargs)
            if kwargs.get("create_graph") or (len(args) > 4 and args[4]):
                enter, leave = BACKWARD, LEAVE
            else:
                enter, leave = ENTER_GRAD, LEAVE_BACKWARD
            guarded("grad", journal.note, enter, BACKWARD)
            if enter == ENTER_GRAD:
                journal.num_nodes = context.num_nodes()
                if journal.losses is not None:
                    guarded("losses", journal.losses.see_grad, args)
            anatomy = context.anatomy
            if enter == ENTER_GRAD and anatomy is not None and anatomy.awaits_backward:
                guarded("anatomy", context.dissect, "see_backward", args)
            try:
                probe = journal.probe
                if probe is None:
                    result = from_callers_place(sys._getframe(1), original, *args, **kwargs)
                else:
                    result = probe.run(journal.disturb, original, args, kwargs, is_call=False)
            except BaseException:
                guarded("grad", journal.note, leave, OTHER)
                raise
            guarded("grad", journal.note, leave, OTHER)
            if enter == ENTER_GRAD and not (journal.has_stepped or journal.has_backward):
                guarded("grad", end_by_hand, context, journal)
            return result
        except BaseException as error:
            drop_frame(error)
            raise

    return grad


# -- optimizers


def hook_optimizers(context: TorchContext) -> None:
    """Register global step hooks, marked so that a compiled `step` still calls them."""
    from torch.optim.optimizer import (
        register_optimizer_step_post_hook,
        register_optimizer_step_pre_hook,
    )

    constants = context.torch.optim.Optimizer.profile_hook_step.__code__.co_consts
    named = {getattr(value, "co_name", None): value for value in constants}
    context.step_code = named.get("wrapper")

    local, recorder, weights = context.local, context.recorder, context.weights

    def before(optimizer: Any, args: Any, kwargs: Any) -> Any:
        try:
            closure = kwargs.get("closure") or (args[1] if len(args) > 1 else None)
            journal = local.journal
            if journal.optimizers and not are_running(context, sys._getframe(2)):
                journal.drop_optimizers()
            has_closure = callable(closure)
            journal.enter_optimizer(has_closure=has_closure)
            if has_closure and len(journal.optimizers) == 1:
                journal.evaluated = ref(optimizer)
            if journal.probe is not None and context.anatomy is not None and not has_closure:
                context.follow_step(journal, optimizer)
            if journal.num_updates >= weights.due:
                context.guarded("weights", context.check_weights, journal, optimizer)
            if context.layers is not None:
                context.guarded("layers", context.layers.begin_step, journal, optimizer)
            if context.trial is not None:
                return context.trial.begin_update(journal, optimizer, args, kwargs)
        except BaseException:
            recorder.fail("optimizer")
        return None

    def after(optimizer: Any, args: Any, kwargs: Any) -> None:
        try:
            journal = local.journal
            if context.before_update is not None and len(journal.optimizers) == 1:
                journal.replay()
                context.before_update(journal.timeline)
            skipped = found_inf(optimizer) if journal.scaler is not None else 0
            journal.leave_optimizer(optimizer, skipped)
            if not journal.optimizers:
                context.sense.end_step(journal, optimizer)
            anatomy = context.anatomy
            if anatomy is None or journal.optimizers:
                return
            if anatomy.num_at_rest and journal.probe is None:
                anatomy.num_at_rest -= 1
            else:
                context.end_update()
        except BaseException:
            recorder.fail("optimizer")

    context.optimizer_hooks = (before, after)
    hook: Any
    for hook in context.optimizer_hooks:
        hook._torchdynamo_disable = True  # compiler.disable would import dynamo
    handles = [register_optimizer_step_pre_hook(before), register_optimizer_step_post_hook(after)]
    context.optimizer_keys = tuple(handle.id for handle in handles)
    context.undo += [handle.remove for handle in handles]


def are_running(context: TorchContext, frame: Any) -> bool:
    """Return whether the optimizer steps that seem open are really on the stack.

    If an exception left them, no hook was called, and the next update would seem to be part of that
    step.
    """
    num_running = 0
    while frame is not None:
        num_running += frame.f_code is context.step_code
        frame = frame.f_back
    return num_running >= len(context.journal.optimizers)


def found_inf(optimizer: Any) -> int | None:
    """Return whether a fused optimizer must skip: 0 or 1, None where asking would synchronize."""
    flag = getattr(optimizer, "found_inf", None)
    if flag is None:
        return 0
    return int(bool(flag.item())) if flag.device.type == "cpu" else None


def num_called(journal: Journal) -> int:
    """Return how many steps of optimizers ended so far, those included that were no update."""
    resting = journal.resting
    num_unwritten = 0 if resting is None else resting.num_unwritten
    return journal.num_updates + journal.num_empty + num_unwritten


def end_scaled(journal: Journal, optimizer: Any, num_before: int) -> None:
    """Take the end of a scaler's step: without a step of an optimizer, the update was skipped."""
    if num_called(journal) == num_before:
        journal.skip_update(optimizer)


def hook_scaler(context: TorchContext) -> None:
    """Count a scaler's skipped update as an update, marked skipped: no optimizer hook sees it."""
    scaler_class = context.torch.amp.GradScaler
    original = scaler_class.step
    is_compiling = context.torch.compiler.is_dynamo_compiling
    local, guarded, fail = context.local, context.guarded, context.recorder.fail

    def step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        journal, before = local.journal, 0
        try:
            before, journal.scaler = num_called(journal), self
        except BaseException:
            fail("scaler")
        try:
            result = original(self, optimizer, *args, **kwargs)
        except BaseException as error:
            drop_frame(error)
            raise
        finally:
            journal.scaler = None
        if getattr(self, "_enabled", False):
            guarded("scaler", end_scaled, journal, optimizer, before)
        return result

    scaled_by = scaler_class.scale

    def scale(self: Any, outputs: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            scaled = scaled_by(self, outputs, *args, **kwargs)
        except BaseException as error:
            drop_frame(error)
            raise
        losses = local.journal.losses
        if losses is not None and not is_compiling():
            guarded("losses", losses.see_scaled, outputs, scaled)
        return scaled

    replace(scaler_class, "scale", scale)
    replace(scaler_class, "step", step)
    unscale = marked(context, scaler_class.unscale_, GRADIENT_PROCESSING)
    replace(scaler_class, "unscale_", unscale)


def hook_clipping(context: TorchContext) -> None:
    """Book clipping as gradient processing, wherever the script calls it."""
    utils = context.torch.nn.utils

    def see_norm(journal: Journal, norm: Any) -> None:
        if journal.losses is not None:
            journal.losses.see_norm(norm)

    pass_as_torchs(context.torch, see_norm)
    for name in ("clip_grad_norm_", "clip_grad_value_"):
        see = see_norm if name == "clip_grad_norm_" else None
        wrapper = marked(context, getattr(utils.clip_grad, name), GRADIENT_PROCESSING, see)
        replace(utils.clip_grad, name, wrapper)
        put(utils, name, wrapper)


def pass_over_ours() -> None:
    """Let dynamo pass over the frames of the guest.

    Where a compiled function breaks off and continues in Python, dynamo looks at every frame.
    """
    sys.modules["torch._dynamo.trace_rules"].add(OURS)


def hook_compile(context: TorchContext, callback_module: Any) -> None:
    """Keep compiling apart from the steps; called once dynamo has been imported."""
    handler = callback_module.callback_handler
    outer: list[int] = []

    def started(*_: Any) -> None:
        journal = context.journal
        outer.append(journal.top)
        if not context.has_compiled:
            context.guarded("compile", pass_over_ours)
        context.has_compiled = True
        context.guarded("compile", journal.note_with_cpu, COMPILE, COMPILE)

    def ended(*_: Any) -> None:
        journal = context.journal
        if journal.top == COMPILE and outer:
            context.guarded("compile", journal.note_with_cpu, LEAVE_SPAN, outer.pop())

    def register() -> None:
        handler.register_start_callback(started)
        handler.register_end_callback(ended)

    cleared = type(handler).clear

    def clear(self: Any) -> None:
        cleared(self)
        context.guarded("compile", register)  # `torch._dynamo.reset()` forgets all callbacks

    def forget() -> None:
        for known, ours in ((handler.start_callbacks, started), (handler.end_callbacks, ended)):
            known[:] = [one for one in known if one is not ours]

    replace(type(handler), "clear", clear)
    register()
    context.undo.append(forget)
