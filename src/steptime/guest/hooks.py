"""Hooks on torch's own classes and registries: calls, backward, optimizers, scaler, clipping.

Nothing is ever attached to an object of the user's. Each wrapper hands over to the
original while torch compiles, and its code object bears the file name of what it wraps,
so that dynamo treats it as torch's own frame (docs/explanation/guest.md).
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable
from typing import Any

from .outputs import has_scalar, wants_gradient
from .patch import drop_frame, replace
from .record import Recorder
from .timeline import (
    BACKWARD,
    BATCHES,
    CHECKPOINT,
    COMPILE,
    EVALUATION,
    FORWARD,
    GRADIENT_PROCESSING,
    LOSS,
    NUM_BUCKETS,
    Timeline,
)

MAX_KNOWN_MODULES = 10_000
"""Beyond it the memory of module kinds is dropped: scripts that make modules each step."""

EVALUATES, IS_LOSS, IS_FORWARD, IS_PLAIN, IS_QUIET = range(5)


class Context:
    """What all hooks share: torch, the recorder, one timeline a thread, what is known."""

    def __init__(self, torch: Any, recorder: Recorder) -> None:
        self.torch = torch
        self.is_grad_enabled = torch.is_grad_enabled
        self.loss_class = torch.nn.modules.loss._Loss
        self.graph_class = torch.fx.GraphModule
        self.recorder = recorder
        self.kinds: dict[int, tuple[Any, int, bool]] = {}
        self.trained: set[int] = set()
        self.trained_datasets: set[int] = set()
        self.dataset: int | None = None
        self.num_batches = 0
        self.is_worker = False
        self.ddp_models: weakref.WeakSet[Any] = weakref.WeakSet()
        self.optimizer_hooks: tuple[Any, ...] = ()
        self.before_update: Callable[[Timeline], None] | None = None
        new_timeline = functools.partial(Timeline, recorder)

        class Local(threading.local):
            def __init__(self) -> None:
                self.timeline = new_timeline()

        self.local = Local()

    @property
    def timeline(self) -> Timeline:
        """The calling thread's timeline."""
        return self.local.timeline

    def guarded(self, place: str, act: Callable[..., None], *args: Any) -> None:
        """Do something of ours; a failure is counted and goes no further."""
        try:
            act(*args)
        except Exception:
            self.recorder.fail(place)


def marked(context: Context, original: Any, bucket: int) -> Any:
    """A wrapper that books the whole call to `bucket`, unless it is open already."""
    is_compiling = context.torch.compiler.is_dynamo_compiling
    local, fail = context.local, context.recorder.fail
    enter, leave = Timeline.enter, Timeline.leave
    if bucket >= EVALUATION:
        enter, leave = Timeline.enter_span, Timeline.leave_span

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return original(*args, **kwargs)
        try:
            timeline = local.timeline
            if timeline.top == bucket:
                return original(*args, **kwargs)
            try:
                enter(timeline, bucket)
            except Exception:
                fail("enter")
            try:
                return original(*args, **kwargs)
            finally:
                try:
                    leave(timeline)
                except Exception:
                    fail("leave")
        except BaseException as error:
            drop_frame(error)
            raise

    return wrapper


# -- the outermost call of a model


def hook_calls(context: Context) -> None:
    """Time the outermost `Module.__call__`; nested ones pass through.

    The wrapper takes the place of torch's own two-way switch instead of calling it, so a
    nested call costs two look-ups and no frame. Its lines stand so that the nested calls
    bear the line numbers of torch's, and tracebacks show what they show without us.
    """
    module_class = context.torch.nn.Module
    original = module_class.__call__
    if original.__code__.co_names != ("_compiled_call_impl", "_call_impl"):
        raise RuntimeError(f"unknown Module.__call__: {original.__code__.co_names}")
    is_compiling = context.torch.compiler.is_dynamo_compiling
    local = context.local

    # fmt: off
    def _wrapped_call_impl(self: Any, *args: Any, **kwargs: Any) -> Any:
        if (busy := is_compiling() or 0 < local.timeline.top < NUM_BUCKETS) and self._compiled_call_impl is not None:  # noqa: E501
            return self._compiled_call_impl(*args, **kwargs)
        if busy:
            return self._call_impl(*args, **kwargs)
        try:
            return observe_call(context, original, self, args, kwargs)
        except BaseException as error:
            drop_frame(error)
            raise
    # fmt: on

    replace(module_class, "__call__", _wrapped_call_impl)
    module_class._wrapped_call_impl = _wrapped_call_impl  # its own name, by which pickle finds it


def observe_call(context: Context, original: Any, module: Any, args: Any, kwargs: Any) -> Any:
    """Run an outermost call inside the marker that fits it."""
    timeline = context.local.timeline
    known = context.kinds.get(id(module))
    if known is not None and known[0]() is not module:
        known = None
    try:
        if known is None or not context.is_grad_enabled():
            kind = begin_call(context, timeline, module, None if known is None else known[1])
        elif (kind := known[1]) == IS_FORWARD:
            timeline.enter_forward()
        elif kind == IS_LOSS:
            timeline.enter(LOSS)
    except Exception:
        context.recorder.fail("call")
        kind = IS_QUIET
    try:
        result = original(module, *args, **kwargs)
    except BaseException as error:
        context.guarded("call", end_call, context, timeline, module, kind, None)
        drop_frame(error)
        raise
    try:
        if kind == IS_FORWARD and known is not None and not timeline.is_sampled:
            timeline.leave_forward(loss_inside=known[2])  # nothing to learn
        else:
            end_call(context, timeline, module, kind, result)
    except Exception:
        context.recorder.fail("call")
    return result


def begin_call(context: Context, timeline: Timeline, module: Any, known: int | None) -> int:
    """Open the marker that fits the call; returns its kind."""
    if context.is_grad_enabled():
        kind = known if known is not None else guess(context, module)
    elif getattr(module, "training", True) or not is_evaluation(context, module):
        kind = IS_PLAIN
    else:
        kind = EVALUATES
    if kind == IS_FORWARD:
        timeline.enter_forward()
    elif kind == EVALUATES:
        timeline.enter_evaluation()
    elif kind == IS_LOSS:
        timeline.enter(LOSS)
    elif kind == IS_PLAIN:
        timeline.enter(FORWARD)
    return kind


def guess(context: Context, module: Any) -> int:
    """What a module that is seen for the first time with gradients may be."""
    if isinstance(module, context.graph_class) and not has_parameters(module):
        return remember(context, module, IS_QUIET)  # a compiler's own: it lifts them to inputs
    if isinstance(module, context.loss_class):
        return remember(context, module, IS_LOSS)
    return IS_FORWARD


def is_evaluation(context: Context, module: Any) -> bool:
    """Without gradients and in eval mode: evaluation, or a teacher inside the step?

    It is evaluation if the module also trains, if nothing has trained yet, or if its
    batch came from a data set that never fed training. A target network or a teacher
    (never trained here, fed by the training loader) stays in the step's forward.
    """
    if not context.trained or id(module) in context.trained:
        return True
    timeline = context.timeline
    has_batch = timeline.wall[BATCHES] > timeline.mark[BATCHES]
    return has_batch and context.dataset not in context.trained_datasets


def end_call(context: Context, timeline: Timeline, module: Any, kind: int, result: Any) -> None:
    """Close the marker of `begin_call` and learn what kind of module it was."""
    if kind == IS_FORWARD:
        loss_inside = has_scalar(context.torch, result)
        timeline.leave_forward(loss_inside=loss_inside)
        if context.dataset is not None:
            context.trained_datasets.add(context.dataset)
        learn(context, module, result, loss_inside=loss_inside)
    elif kind == EVALUATES:
        timeline.leave_evaluation()
    elif kind == IS_LOSS:
        timeline.leave_loss()
    elif kind == IS_PLAIN:
        timeline.leave()


def learn(context: Context, module: Any, result: Any, *, loss_inside: bool) -> None:
    """Remember a module after a call with gradients.

    One without parameters is a loss if it returned a scalar to go backward from, and is
    left alone (a transform, a metric) if it returned nothing that needs a gradient.
    """
    if result is None:
        return
    torch = context.torch
    if has_parameters(module):
        if module.training and id(module) not in context.trained:
            parts = [id(part) for part in module.modules()]
            context.trained.update(parts)
            recorder = context.recorder
            recorder.nested_per_update = max(recorder.nested_per_update, len(parts))
        remember(context, module, IS_FORWARD, loss_inside=loss_inside)
    elif loss_inside:
        remember(context, module, IS_LOSS)
    elif isinstance(result, torch.Tensor) and not wants_gradient(torch, result):
        remember(context, module, IS_QUIET)


def has_parameters(module: Any) -> bool:
    """True if there is anything to train in it."""
    return next(iter(module.parameters()), None) is not None


def remember(context: Context, module: Any, kind: int, *, loss_inside: bool = False) -> int:
    """Keep a module's kind, by weak reference: numbers of dead objects are given again."""
    if len(context.kinds) > MAX_KNOWN_MODULES:
        context.kinds.clear()
    context.kinds[id(module)] = (weakref.ref(module), kind, loss_inside)
    return kind


# -- backward


def hook_backward(context: Context) -> None:
    """Time `Tensor.backward` and `autograd.backward`; `autograd.grad` is timed, not counted."""
    torch = context.torch
    for owner in (torch.Tensor, torch.autograd):
        wrapper = make_backward(context, owner.backward)
        replace(owner, "backward", wrapper)
    replace(torch.autograd, "grad", make_grad(context, torch.autograd.grad))


def make_backward(context: Context, original: Any) -> Any:
    """A wrapper that times and counts the outermost backward call."""
    is_compiling = context.torch.compiler.is_dynamo_compiling
    local, fail = context.local, context.recorder.fail

    def backward(*args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return original(*args, **kwargs)
        try:
            timeline = local.timeline
            if timeline.in_backward:
                return original(*args, **kwargs)
            timeline.in_backward = True
            try:
                timeline.enter_backward()
            except Exception:
                fail("backward")
            try:
                return original(*args, **kwargs)
            finally:
                timeline.in_backward = False
                try:
                    timeline.leave_backward()
                except Exception:
                    fail("backward")
        except BaseException as error:
            drop_frame(error)
            raise

    return backward


def make_grad(context: Context, original: Any) -> Any:
    """A wrapper that books `autograd.grad` outside other markers to backward, uncounted."""
    is_compiling = context.torch.compiler.is_dynamo_compiling
    local, guarded = context.local, context.guarded

    def grad(*args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return original(*args, **kwargs)
        try:
            timeline = local.timeline
            if 0 < timeline.top < NUM_BUCKETS:
                return original(*args, **kwargs)
            guarded("grad", timeline.enter, BACKWARD)
            try:
                return original(*args, **kwargs)
            finally:
                guarded("grad", timeline.leave)
        except BaseException as error:
            drop_frame(error)
            raise

    return grad


# -- optimizers


def hook_optimizers(context: Context) -> None:
    """Global step hooks, marked so that a compiled `step` still calls them."""
    from torch.optim.optimizer import (
        register_optimizer_step_post_hook,
        register_optimizer_step_pre_hook,
    )

    local, recorder = context.local, context.recorder

    def before(optimizer: Any, args: Any, kwargs: Any) -> None:
        try:
            closure = kwargs.get("closure") or (args[1] if len(args) > 1 else None)
            local.timeline.enter_optimizer(has_closure=callable(closure))
        except Exception:
            recorder.fail("optimizer")

    def after(optimizer: Any, args: Any, kwargs: Any) -> None:
        try:
            timeline = local.timeline
            if timeline.optimizer_depth == 1 and context.before_update is not None:
                context.before_update(timeline)
            skipped = found_inf(optimizer) if timeline.scaler is not None else 0
            timeline.leave_optimizer(optimizer, skipped)
        except Exception:
            recorder.fail("optimizer")

    for hook in (before, after):
        hook._torchdynamo_disable = True  # type: ignore[attr-defined]  # calling compiler.disable imports dynamo
    context.optimizer_hooks = (before, after)
    register_optimizer_step_pre_hook(before)
    register_optimizer_step_post_hook(after)


def found_inf(optimizer: Any) -> int | None:
    """Whether a fused optimizer is told to skip: 0 or 1, None where asking would synchronize."""
    flag = getattr(optimizer, "found_inf", None)
    if flag is None:
        return 0
    return int(bool(flag.item())) if flag.device.type == "cpu" else None


def hook_scaler(context: Context) -> None:
    """A scaler that skips calls no optimizer hook; it counts as an update, marked skipped."""
    scaler_class = context.torch.amp.GradScaler
    original = scaler_class.step
    local, guarded = context.local, context.guarded

    def step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        timeline = local.timeline
        before, timeline.scaler = timeline.num_updates, self
        try:
            result = original(self, optimizer, *args, **kwargs)
        except BaseException as error:
            drop_frame(error)
            raise
        finally:
            timeline.scaler = None
        if timeline.num_updates == before and getattr(self, "_enabled", False):
            guarded("scaler", timeline.skip_update, optimizer)
        return result

    replace(scaler_class, "step", step)
    unscale = marked(context, scaler_class.unscale_, GRADIENT_PROCESSING)
    replace(scaler_class, "unscale_", unscale)


def hook_clipping(context: Context) -> None:
    """Clipping is gradient processing wherever it stands."""
    utils = context.torch.nn.utils
    for name in ("clip_grad_norm_", "clip_grad_value_"):
        wrapper = marked(context, getattr(utils.clip_grad, name), GRADIENT_PROCESSING)
        replace(utils.clip_grad, name, wrapper)
        setattr(utils, name, wrapper)


def hook_checkpoints(context: Context) -> None:
    """Writing a checkpoint is kept apart from the steps."""
    torch = context.torch
    wrapper = marked(context, torch.serialization.save, CHECKPOINT)
    replace(torch.serialization, "save", wrapper)
    torch.save = wrapper


def hook_compile(context: Context, callback_module: Any) -> None:
    """Compiling is kept apart from the steps; called once dynamo has been imported."""
    handler = callback_module.callback_handler

    def started(*_: Any) -> None:
        context.guarded("compile", context.timeline.enter_span, COMPILE)

    def ended(*_: Any) -> None:
        timeline = context.timeline
        if timeline.top == COMPILE:
            context.guarded("compile", timeline.leave_span)

    handler.register_start_callback(started)
    handler.register_end_callback(ended)
