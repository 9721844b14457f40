"""The outermost call of a model, a loss or an evaluation, seen by `nn.Module.__call__`.

The hook is on the class. Nothing is ever attached to an object of the user's: what is learned about
a module is kept under its id, with a weak reference.
"""

from __future__ import annotations

import weakref
from time import perf_counter_ns
from typing import Any

from ....record.buckets import BATCHES, EVALUATION, FORWARD, LOSS, OTHER
from ...hooks.module_tree import has_parameters, modules_of
from ...hooks.patching import drop_frame, pass_as_torchs, put, replace
from ...padding.batch_watch import TAKE_TENSORS
from ...timeline.acts import (
    ENTER_ACTING,
    ENTER_EVALUATION,
    ENTER_FORWARD,
    ENTER_GROWING,
    LEAVE,
    LEAVE_ACTING,
    LEAVE_EVALUATION,
    LEAVE_FORWARD,
    LEAVE_FORWARD_WITH_LOSS,
    LEAVE_LOSS,
)
from ...timeline.journal import Journal
from .outputs import has_scalar, wants_gradient
from .torch_context import TorchContext

MAX_KNOWN_MODULES = 10_000
"""Beyond this, the known kinds of modules are dropped: some scripts make modules in each step."""

EVALUATES, IS_LOSS, IS_FORWARD, IS_PLAIN, IS_QUIET, ACTS = range(6)


def hook_calls(context: TorchContext) -> None:
    """Time the outermost `Module.__call__`; nested calls pass through.

    The wrapper replaces torch's own two-way switch instead of calling it, so a nested call costs
    two lookups and no frame. Its lines are placed so that nested calls have the line numbers of
    torch's own, and tracebacks show what they would show without us.
    """
    module_class = context.torch.nn.Module
    original = module_class.__call__
    if original.__code__.co_names != ("_compiled_call_impl", "_call_impl"):
        raise RuntimeError(f"unknown Module.__call__: {original.__code__.co_names}")
    is_compiling = context.torch.compiler.is_dynamo_compiling
    local = context.local  # `top` is 0 (`OTHER`) where no marker of ours is open
    parts = context.repeats.parts
    pass_as_torchs(context.torch, *TAKE_TENSORS)

    # fmt: off
    def _wrapped_call_impl(self: Any, *args: Any, **kwargs: Any) -> Any:
        if (busy := is_compiling() or local.journal.top) and self._compiled_call_impl is not None:
            return self._compiled_call_impl(*args, **kwargs)
        if busy and (busy is True or not parts or busy != FORWARD or id(self) not in parts):
            return self._call_impl(*args, **kwargs)
        try:
            see = observe_part if busy else observe_call
            return see(context, original, self, args, kwargs)
        except BaseException as error:
            drop_frame(error)
            raise
    # fmt: on

    replace(module_class, "__call__", _wrapped_call_impl)
    put(module_class, "_wrapped_call_impl", _wrapped_call_impl)  # where pickle finds it


def observe_call(context: TorchContext, original: Any, module: Any, args: Any, kwargs: Any) -> Any:
    """Run an outermost call inside the marker that fits it.

    While torch traces a module into a graph, even the size of a tensor is part of that graph, and
    one that is kept beyond it ends the process. So nothing of ours looks at such a call.
    """
    known, kind = None, IS_QUIET
    try:
        is_traced = context.torch._C._get_tracing_state() is not None
        known = None if is_traced else context.kinds.get(id(module))
        if known is not None and known[0]() is not module:
            known = None
        kind = IS_QUIET if known is None else known[1]
        if not is_traced and (known is None or not context.is_grad_enabled()):
            kind = find_kind(context, module, None if known is None else kind)
    except BaseException:
        context.recorder.fail("call")
    try:
        if kind == IS_FORWARD:
            return run_forward(context, original, module, args, kwargs, known)
        if kind == IS_QUIET:
            return original(module, *args, **kwargs)
        return run_other(context, original, module, args, kwargs, kind)
    except BaseException as error:
        drop_frame(error)
        raise


def observe_part(context: TorchContext, original: Any, part: Any, args: Any, kwargs: Any) -> Any:
    """Run a frozen part of a model that trains, within the model's forward."""
    began = perf_counter_ns()
    try:
        result = original(part, *args, **kwargs)
    except BaseException as error:
        drop_frame(error)
        raise
    if context.local.journal is context.first_journal:
        ns = perf_counter_ns() - began
        context.guarded("again", context.repeats.see_part, part, (args, kwargs), result, ns)
    return result


def run_forward(
    context: TorchContext, original: Any, module: Any, args: Any, kwargs: Any, known: Any
) -> Any:
    """Run a call with gradients; `known` is what was learned of the module before, if anything."""
    journal, anatomy, trial = context.local.journal, context.anatomy, context.trial
    probe = None
    began = perf_counter_ns()
    try:
        journal.note(ENTER_FORWARD, FORWARD)
        context.see_shape(journal, args, kwargs, is_plain=False)
        context.sense.begin_call(module, args, kwargs)
        probe = context.choose_probe(journal)
        if anatomy is not None and anatomy.awaits_call:
            context.dissect("see_call", module)
    except BaseException:
        context.recorder.fail("call")
    try:
        if trial is not None:
            result = trial.run_call(journal, original, module, args, kwargs)
        elif probe is not None:
            result = probe.run(journal.disturb, original, (module, *args), kwargs, is_call=True)
        else:
            result = original(module, *args, **kwargs)
    except BaseException as error:
        context.guarded("call", end_call, context, journal, module, IS_FORWARD, None)
        drop_frame(error)
        raise
    try:
        if context.sense.replicas.awaits is not None:
            context.sense.replicas.end_call(module)
        if anatomy is not None and anatomy.awaits_backward:
            context.dissect("see_result", result)
        if known is not None and not journal.is_sampled:
            journal.note(LEAVE_FORWARD_WITH_LOSS if known[2] else LEAVE_FORWARD, OTHER)
        else:
            end_call(context, journal, module, IS_FORWARD, result)
        if not module.training:
            context.see_again(module, args, kwargs, result, began)
    except BaseException:
        context.recorder.fail("call")
    return result


def run_other(
    context: TorchContext, original: Any, module: Any, args: Any, kwargs: Any, kind: int
) -> Any:
    """Run a loss, an evaluation, or another call without gradients."""
    journal = context.local.journal
    try:
        if kind == IS_LOSS:
            journal.note(LOSS, LOSS)
        else:
            kind = begin_call(context, journal, module, kind, args, kwargs)
    except BaseException:
        context.recorder.fail("call")
        kind = IS_QUIET
    probe = journal.probe
    began = perf_counter_ns()
    try:
        if kind == IS_LOSS and probe is not None and probe.storages is not None:
            result = probe.follow("loss", original, (module, *args), kwargs)
        elif context.trial is not None and kind in (IS_PLAIN, ACTS):
            result = context.trial.run_plain(original, module, args, kwargs)
        else:
            result = original(module, *args, **kwargs)
    except BaseException as error:
        context.guarded("call", end_call, context, journal, module, kind, None)
        drop_frame(error)
        raise
    context.guarded("call", end_call, context, journal, module, kind, result)
    if kind == EVALUATES and context.first_journal is journal and id(module) in context.trained:
        given = (*args, *kwargs.values())
        context.guarded("sense", context.see_kept, module, given, result, journal.num_updates)
    if kind in (IS_PLAIN, ACTS):
        context.guarded("again", context.see_again, module, args, kwargs, result, began)
    return result


def find_kind(context: TorchContext, module: Any, known: int | None) -> int:
    """Return what this outermost call is for, from what is known about the module and the mode."""
    if known is None:
        known = guess(context, module)
    if known == IS_QUIET or context.is_grad_enabled():
        return known
    if getattr(module, "training", True) or not is_evaluation(context, module):
        return IS_PLAIN
    return EVALUATES


def begin_call(
    context: TorchContext, journal: Journal, module: Any, kind: int, args: Any, kwargs: Any
) -> int:
    """Open the marker of a call without gradients; return what it is for."""
    if context.trial is not None:
        context.trial.see_call_without_gradients(is_evaluation=kind == EVALUATES)
    if kind == EVALUATES:
        journal.acting.begin(journal.num_updates)
        journal.acting.mode = False
        journal.replay()  # what was counted so far belongs to the evaluation
        journal.note_with_cpu(ENTER_EVALUATION, EVALUATION)
    elif acts(context, journal, module, args, kwargs):
        journal.note(ENTER_GROWING if journal.acting.grows else ENTER_ACTING, FORWARD)
        return ACTS
    else:
        journal.note(FORWARD, FORWARD)
    return kind


def acts(context: TorchContext, journal: Journal, module: Any, args: Any, kwargs: Any) -> bool:
    """Note the size of a call without gradients; return whether it seems to act or to generate."""
    shapes, acting = journal.shapes, journal.acting
    num = len(shapes)
    context.see_plain_call(journal, args, kwargs)
    elements = 0
    if len(shapes) != num:  # where there are fewer, they have become sums
        elements = shapes[-1] if len(shapes) > num else acting.last
    acting.begin(journal.num_updates)
    return acting.is_acting(
        elements,
        is_trained=not context.trained or id(module) in context.trained,
        in_training=getattr(module, "training", True),
    )


def guess(context: TorchContext, module: Any) -> int:
    """Return what an unknown module may be."""
    if isinstance(module, context.graph_class) and not has_parameters(module):
        return remember(context, module, IS_QUIET)  # a compiler's own: parameters are inputs
    if isinstance(module, context.loss_class):
        return remember(context, module, IS_LOSS)
    return IS_FORWARD


def is_evaluation(context: TorchContext, module: Any) -> bool:
    """Return whether a call without gradients and in eval mode is an evaluation.

    It is one if the module also trains, if nothing has trained yet, or if its batch came from a
    data set that never fed training. A target network or a teacher (never trained here, fed by the
    training loader) stays in the step's forward. Where the script acts in environments in eval mode
    alone, such a call acts.
    """
    journal = context.journal
    if journal.acting.acts_only_in_eval:
        return False
    if not context.trained or id(module) in context.trained:
        return True
    journal.replay()
    timeline = journal.timeline
    has_batch = timeline.wall[BATCHES] > timeline.mark[BATCHES]
    return has_batch and context.dataset not in context.trained_datasets


def end_call(context: TorchContext, journal: Journal, module: Any, kind: int, result: Any) -> None:
    """Close the marker of a call and learn what kind of module it was."""
    evaluations = context.evaluations
    if kind == IS_FORWARD:
        loss_inside = has_scalar(context.torch, result)
        journal.note(LEAVE_FORWARD_WITH_LOSS if loss_inside else LEAVE_FORWARD, OTHER)
        if context.dataset is not None:
            context.trained_datasets.add(context.dataset)
        learn(context, module, result, loss_inside=loss_inside)
    elif kind == EVALUATES:
        journal.note_with_cpu(LEAVE_EVALUATION, OTHER)
        if context.first_journal in (None, journal):
            context.guarded("evaluations", evaluations.see_call, result, journal)
    elif kind == IS_LOSS:
        journal.note(LEAVE_LOSS, OTHER)
    elif kind == IS_PLAIN:
        journal.note(LEAVE, OTHER)
        if evaluations.number == journal.num_updates and isinstance(module, context.loss_class):
            context.guarded("evaluations", evaluations.see_loss, result, journal.num_updates)
    elif kind == ACTS:
        journal.note(LEAVE_ACTING, OTHER)


def learn(context: TorchContext, module: Any, result: Any, *, loss_inside: bool) -> None:
    """Remember a module after a call with gradients.

    A module without parameters is a loss if it returned a scalar that backward can start from. It
    is left alone (a transform, a metric) if it returned nothing that needs a gradient.
    """
    if result is None:
        return
    torch = context.torch
    if has_parameters(module):
        if module.training and id(module) not in context.trained:
            parts = [id(part) for _, part in modules_of(module)]
            context.trained.update(parts)
            context.repeats.find_parts(module)
            recorder = context.recorder
            recorder.nested_per_update = max(recorder.nested_per_update, len(parts))
        remember(context, module, IS_FORWARD, loss_inside=loss_inside)
    elif loss_inside:
        remember(context, module, IS_LOSS)
    elif isinstance(result, torch.Tensor) and not wants_gradient(torch, result):
        remember(context, module, IS_QUIET)


def remember(context: TorchContext, module: Any, kind: int, *, loss_inside: bool = False) -> int:
    """Keep a module's kind with a weak reference, because Python reuses the ids of dead objects."""
    if len(context.kinds) > MAX_KNOWN_MODULES:
        context.kinds.clear()
    context.kinds[id(module)] = (weakref.ref(module), kind, loss_inside)
    return kind
